"""The loop of every learner rank: drain, decide, update, publish."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.replay.batch import Batch
from motrix_rl.replay.buffer import ReplayBuffer
from transport import (
    ControlBlock,
    Counter,
    DeviceWeightMailbox,
    Phase,
    PipeReader,
    StartupHandshake,
    StopSignal,
    WeightMailbox,
    WorkerBoard,
    wait_any,
)
from workers.assembler import CollectorEndpoint, GenerationAssembler
from workers.collectives import Ranks
from workers.decision import ActingSchedule, Decision, LearnerView, Operation, UpdateSchedule, decide
from workers.learner_state import CheckpointWriter
from workers.publisher import Publisher
from workers.reporting import LearnerReport
from workers.skipped_steps import SkippedSteps
from workers.staging import DrainStaging
from workers.statistics import EpisodeStatistics
from workers.wiring import collector_name

log = logging.getLogger(__name__)

#: Seconds between heartbeats while the first update is waited for.
PREPARATION_BEAT_S = 0.5
#: What a step brought, beside its observation.
OUTCOME = ("reward", "terminated", "truncated", "cut")


class Learner:
    """One rank: its replay shard, its replica of the agent, and the loop that all ranks run in step.

    The parts are made and wired by ``workers.learner``; the loop reads top to bottom.

    Attributes:
        admitted: generations in the replay (absolute; ``gstep`` of the contract).
        preparation: what another thread does for the first update, if anything.
    """

    def __init__(
        self,
        *,
        agent: FastSACAgent,
        replay: ReplayBuffer,
        assembler: GenerationAssembler,
        schedule: UpdateSchedule,
        ranks: Ranks,
        publisher: Publisher,
        statistics: EpisodeStatistics,
        checkpoints: CheckpointWriter,
        report: LearnerReport,
        board: WorkerBoard,
        control: ControlBlock,
        notices: PipeReader,
        handshake: StartupHandshake,
        evaluation: WeightMailbox,
        acting: ActingSchedule | None = None,
        stop: StopSignal,
        total: int,
        nnodes: int = 1,
        max_ingest: int,
        save_interval: int,
        eval_interval: int,
        skipped: SkippedSteps | None = None,
        staging: DrainStaging | None = None,
        shared_weights: DeviceWeightMailbox | None = None,
    ) -> None:
        self.agent = agent
        self.replay = replay
        self.assembler = assembler
        self.schedule = schedule
        self.ranks = ranks
        self.publisher = publisher
        self.statistics = statistics
        self.checkpoints = checkpoints
        self.report = report
        self.board = board
        self.control = control
        self.notices = notices
        self.handshake = handshake
        self.evaluation = Publisher(agent, (evaluation,), 0)
        self.acting = acting
        self.stop = stop
        self.total = total
        self.nnodes = nnodes
        self.max_ingest = max_ingest
        self.save_interval = save_interval
        self.eval_interval = eval_interval
        self.skipped = skipped
        self.staging = DrainStaging("cpu") if staging is None else staging
        self.shared_weights = shared_weights
        self.admitted = assembler.next_generation
        self.preparation: Future[float] | None = None
        self._another_machine_stops = False
        self._saved_at = self.admitted
        self._evaluated = self.admitted // eval_interval if eval_interval else 0

    def run(self) -> None:
        """Learns until the last generation, or until stop is raised; the last decisions are save and stop."""
        while True:
            self.hear_notices()
            self.assembler.drain()
            decision = self._decide()
            if decision.operation is Operation.TRAIN:
                self._train(decision)
            elif decision.operation is Operation.SAVE:
                self._save()
            else:
                if self.admitted < self.total:
                    self._stop_this_machine()
                break
        self.report.flush(self)

    def _decide(self) -> Decision:
        """Rank 0 decides, waiting for data while there is nothing to do; the others hear from it."""
        if self.ranks.rank != 0:
            return self.ranks.share(None)
        while True:
            view = LearnerView(
                admitted=self.admitted,
                complete=self.assembler.complete,
                done=self.agent.updates_done,
                total=self.total,
                stopping=self.stop.is_set() or self._another_machine_stops,
                save_due=self.save_interval > 0 and self.admitted % self.save_interval == 0,
                saved=self._saved_at == self.admitted,
            )
            decision = decide(view, self.schedule, self.max_ingest, self.save_interval)
            if decision is not None:
                return self.ranks.share(decision)
            self._wait_for_data()

    def _wait_for_data(self) -> None:
        """Sleeps until a ring that the next generation waits for has a slot, or stop is raised."""
        self.board.set_phase(Phase.WAITING)
        rings = [endpoint.consumer.filled_fd for endpoint in self.assembler.missing()]
        wait_any([*rings, self.notices], self.stop, timeout_s=1.0)
        self.board.beat()
        self.hear_notices()
        self.assembler.drain()

    def hear_notices(self) -> bool:
        """Puts the ring of a collector that was reaped in order; its successor starts after the answer.

        Returns:
            Whether one was lost.
        """
        notices = self.notices.drain()
        for notice in notices:
            endpoint = next(e for e in self.assembler.endpoints if e.collector == notice["collector"])
            generation = self._recover(endpoint)
            log.warning(
                "collector %d is gone; its successor starts at generation %d", endpoint.collector, generation
            )
            self.report.recovered(endpoint.collector, generation)
        return bool(notices)

    def _recover(self, endpoint: CollectorEndpoint) -> int:
        """Rebuilds a dead producer's ring and cuts its last row, wherever that row is by now."""
        found = endpoint.consumer.recover()
        waits = found.in_ring and bool(endpoint.drain() or endpoint.seated)  # then its flags say so
        if not waits and found.last_generation is not None:
            self.replay.mark_last_cut(endpoint.env_lo, endpoint.env_hi)
            self.agent.mark_last_cut(endpoint.env_lo, endpoint.env_hi)
            self.statistics.abort(range(endpoint.env_lo, endpoint.env_hi))
        endpoint.incarnation += 1
        endpoint.restarted_at = found.next_generation
        self.deliver_slots(endpoint)
        return found.next_generation

    def deliver_slots(self, endpoint: CollectorEndpoint) -> None:
        """Tells the present incarnation of a collector where its slots are: exactly one message."""
        message = endpoint.consumer.message()
        if self.shared_weights is not None:
            message = replace(message, weights=self.shared_weights.message())
        self.handshake.deliver(collector_name(endpoint.collector), endpoint.incarnation, message)

    def _train(self, decision: Decision) -> None:
        while self.assembler.complete < decision.generation:  # only ranks other than 0 ever wait here
            if self.stop.is_set():
                break
            self._wait_for_data()
        self.board.set_phase(Phase.INGESTING)
        while self.admitted < min(decision.generation, self.assembler.complete):
            self._admit()
        self.admitted = decision.generation  # also where stop ended the wait: counters are everybody's
        self.agent.sync_statistics()
        if self.nnodes > 1:  # on one machine the stop signal is everybody's
            self._another_machine_stops = bool(self.ranks.gather("stop", [self.stop.is_set()]).any())
            if self._another_machine_stops:
                self._stop_this_machine()
        self.assembler.release_popped()
        if decision.num_updates:
            self._update(decision.num_updates)
        if self.acting is not None:
            self.publisher.publish(self.admitted)
        if self._evaluation_due():
            self.evaluation.publish(self.admitted)
        self.board.set(Counter.GENERATION, self.admitted)
        self.report.after_decision(self, decision.generation)

    def _stop_this_machine(self) -> None:
        """Collectors and supervisor of this machine hear from here that the ranks have agreed to stop."""
        if not self.stop.is_set():
            self.report.stopping("another machine was asked to stop")
            self.stop.set()

    def collector_saved(self, collector: int) -> int:
        """Generation for which a collector has last written its state (deterministic mode)."""
        rows = {row.name: row for row in self.control.snapshot()}
        return rows[collector_name(collector)].saved

    def policy_lag(self, version: int) -> int:
        """Updates between the version that acted and now."""
        acted = version if self.acting is None else self.schedule.due(version)
        return self.agent.updates_done - acted

    def _evaluation_due(self) -> bool:
        """Whether the run has crossed another multiple of the interval, or is at its end, which the evaluator
        waits for even if nothing was learnt."""
        if self.eval_interval == 0 or self.ranks.rank != 0:
            return False
        multiple = self.admitted // self.eval_interval
        due = self.admitted == self.total or (multiple > self._evaluated and self.agent.updates_done > 0)
        if due:
            self._evaluated = multiple
        return due

    def _admit(self) -> None:
        """Moves one complete generation from the rings into the replay."""
        shards = self.assembler.pop()
        staged = self.staging.stage(shards)
        self.replay.append(self.admitted, staged)
        for endpoint, shard in zip(self.assembler.endpoints, shards, strict=True):
            reward, terminated, truncated, cut = (on_host(getattr(shard, name)) for name in OUTCOME)
            self.statistics.add(endpoint.env_lo, reward, terminated | truncated, cut)
            self.report.saw_slot(self, shard)
            self.board.add(Counter.ENV_STEPS, shard.num_envs)
        self.agent.observe(
            row_of(staged, "obs"),
            row_of(staged, "critic_obs"),
            **{name: row_of(staged, name) for name in OUTCOME},
        )
        self.staging.finished()
        self.admitted += 1

    def _update(self, count: int) -> None:
        self._await_preparation()
        self.board.set_phase(Phase.UPDATING)
        if self.publisher.version < 0 and self.acting is None:
            self.publisher.publish()  # learning begins
        if self.replay.ready:
            self.agent.update(self.replay, count, on_update=self._after_update)
        else:
            self._take_part(count)
        if self.skipped is not None:
            self.skipped.after_updates()

    def _await_preparation(self) -> None:
        """Returns when the first update may be done; what failed on the way fails here."""
        while self.preparation is not None:
            self.board.beat()
            wait([self.preparation], timeout=PREPARATION_BEAT_S)
            if self.preparation.done():
                self.preparation.result()
                self.preparation = None

    def _take_part(self, count: int) -> None:
        """Performs agreed updates without data: stop came before this rank's first. Rows without weight."""
        batch, noise = blank_batch(self.agent)
        for _ in range(count):
            self.agent.update_on(batch, noise, noise)
            self._after_update(self.agent.updates_done)

    def _after_update(self, updates_done: int) -> None:
        self.publisher.after_update(updates_done)
        self.board.set(Counter.UPDATES, updates_done)
        self.board.beat()

    def _save(self) -> None:
        self.board.set_phase(Phase.SAVING)
        self._saved_at = self.admitted
        self.checkpoints.save(self)


def blank_batch(agent: FastSACAgent) -> tuple[Batch, torch.Tensor]:
    """A batch of rows without weight, and noise ``[B, A]`` of zeros: an update's shapes without its data."""
    spec, size = agent.env_spec, agent.batch_size
    batch = Batch.allocate(size, spec.obs_dim, spec.action_dim, spec.critic_obs_dim, agent.device).zero_()
    return batch, torch.zeros((size, spec.action_dim), dtype=agent.dtype, device=agent.device)


def row_of(shards: Sequence[Any], name: str) -> Any:
    """One field of a whole generation, ``[N, ...]``; the slot itself where one collector fills the row.

    Returns:
        An array or, where a shard lies in device memory, a tensor on that device; None for a field that this
        task has not.
    """
    parts = [getattr(shard, name) for shard in shards]
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    device = next(part.device for part in parts if isinstance(part, torch.Tensor))
    return torch.cat([torch.as_tensor(part, device=device) for part in parts])


def on_host(field: Any) -> npt.NDArray[Any]:
    """A field as an array; a device is waited for, for the few bytes this is meant for."""
    return field if isinstance(field, np.ndarray) else field.cpu().numpy()
