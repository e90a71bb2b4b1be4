"""A learner with real rings, replay and mailbox, driven in one process by a script instead of collectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.config import FastSACConfig
from motrix_rl.checkpoint import CheckpointStore
from motrix_rl.replay.buffer import ReplayBuffer
from tests.workers.doubles_workers import NotedRequests, NotedSaves, RecordedRank
from tests.workers.rows_workers import SPEC, ScriptedCollector
from transport import (
    ControlBlock,
    Ring,
    SlotLayout,
    SlotView,
    StartupHandshake,
    StopSignal,
    WeightMailbox,
    message_pipe,
)
from workers.assembler import CollectorEndpoint, GenerationAssembler
from workers.decision import Decision, UpdateSchedule, warmup_generations
from workers.learner_state import CheckpointWriter
from workers.learning_loop import Learner
from workers.publisher import Publisher
from workers.reporting import LearnerReport
from workers.statistics import EpisodeStatistics
from workers.wiring import collector_name, learner_name


def small_agent(**changed: Any) -> FastSACConfig:
    """Settings of an agent whose update takes a few milliseconds."""
    sizes: dict[str, Any] = {
        "batch_size": 8,
        "actor_hidden_dim": 8,
        "critic_hidden_dim": 8,
        "num_atoms": 5,
        "learning_starts": 12,
        "buffer_size": 4000,
        "num_updates": 2,
    }
    return FastSACConfig(**{**sizes, **changed})


class DrivenLearner(Learner):
    """Where the loop would wait for data, and after each update, the script has its turn."""

    script: Callable[[bool], None] = staticmethod(lambda waiting: None)

    requests: NotedRequests

    def _decide(self) -> Decision:
        self.requests.look()
        return super()._decide()

    def _wait_for_data(self) -> None:
        self.script(True)
        self.hear_notices()
        self.assembler.drain()

    def _after_update(self, updates_done: int) -> None:
        super()._after_update(updates_done)
        self.script(False)


@dataclass
class Rig:
    """A learner and what it is wired to.

    Attributes:
        lags: policy lag, in updates, of every slot admitted.
    """

    learner: DrivenLearner
    collectors: list[ScriptedCollector]
    stop: StopSignal
    notices: Any
    messages: Any
    ranks: RecordedRank
    mailbox: WeightMailbox
    requests: NotedRequests
    saves: NotedSaves
    lags: list[int] = field(default_factory=list)

    def lose(self, collector: ScriptedCollector, torn: bool) -> None:
        """Kills a collector and tells the learner, as the supervisor does when it has reaped it."""
        collector.die(torn)
        collector.expected_cut()
        self.notices.send(
            {"kind": "collector_lost", "collector": collector.index, "incarnation": collector.incarnation}
        )

    def hear(self) -> list[dict[str, Any]]:
        """What the learner has told the supervisor; a recovered collector is started again."""
        messages = self.messages.drain()
        for message in messages:
            if message["kind"] == "recovered":
                collector = self.collectors[message["collector"]]
                collector.start_again()
                assert collector.producer.next_generation == message["generation"]
        return messages


def make_rig(
    directory: Path,
    *,
    collectors: int = 1,
    envs: int = 4,
    total: int = 60,
    settings: FastSACConfig | None = None,
    agent: Any = None,
    replay_rows: int = 50,
    ring_capacity: int = 4,
    max_ingest: int = 8,
    save_interval: int = 0,
    eval_interval: int = 0,
    publish_interval: int = 4,
    schedule: UpdateSchedule | None = None,
    start: int = 0,
    seed: int = 0,
    on_decision: Callable[[DrivenLearner, Decision], None] | None = None,
    report_interval: int = 10,
) -> Rig:
    """Wires a learner of ``collectors`` rings with ``envs`` environments each."""
    settings = settings or small_agent()
    rng = np.random.default_rng(seed)
    num_envs = collectors * envs
    names = [collector_name(i) for i in range(collectors)]
    layout = SlotLayout.for_shard(envs, SPEC.obs_dim, SPEC.action_dim, None)
    rings = [Ring.create(layout, ring_capacity, start_generation=start, poison=True) for _ in names]
    real = agent is None
    if real:
        agent = FastSACAgent(settings, SPEC, device="cpu", init_seed=1, sample_seed=2)
    mailbox = WeightMailbox.create(4 * agent.policy_size)
    notice_reader, notice_writer = message_pipe()
    reader, writer = message_pipe()
    control = ControlBlock.create([learner_name(0), *names])
    evaluation = WeightMailbox.create(4 * agent.policy_size)
    stop, requests, saves = StopSignal(), NotedRequests(evaluation), NotedSaves()
    warmup = warmup_generations(settings.learning_starts, num_envs, settings.n_step)
    endpoints = [
        CollectorEndpoint(i, ring.consumer(), i * envs, (i + 1) * envs) for i, ring in enumerate(rings)
    ]
    lags: list[int] = []

    class LagReport(LearnerReport):
        def saw_slot(self, learner: Learner, shard: SlotView) -> None:
            super().saw_slot(learner, shard)
            if shard.policy_version >= 0:
                lags.append(learner.agent.updates_done - shard.policy_version)

    ranks = RecordedRank(lambda d: on_decision(learner, d) if on_decision else None)
    learner = DrivenLearner(
        agent=agent,
        replay=ReplayBuffer(
            num_envs=num_envs,
            capacity=replay_rows,
            obs_dim=SPEC.obs_dim,
            critic_obs_dim=None,
            action_dim=SPEC.action_dim,
            n_step=settings.n_step,
            gamma=settings.gamma,
            device="cpu",
            final_pool_size=6 * num_envs,
        ),
        assembler=GenerationAssembler(endpoints, start),
        schedule=schedule or UpdateSchedule(settings.num_updates, warmup),
        ranks=ranks,
        publisher=Publisher(agent, (mailbox,), publish_interval),
        statistics=EpisodeStatistics(num_envs),
        checkpoints=writer_of(directory, num_envs) if real else saves,
        report=LagReport(writer, interval=report_interval, num_envs=num_envs, start=start),
        board=control.board(learner_name(0)),
        notices=notice_reader,
        handshake=StartupHandshake.create([learner_name(0), *names], names),
        evaluation=evaluation,
        control=control,
        stop=stop,
        total=total,
        max_ingest=max_ingest,
        save_interval=save_interval,
        eval_interval=eval_interval,
    )
    learner.requests = requests
    for endpoint in endpoints:
        learner.deliver_slots(endpoint)
    scripted = [ScriptedCollector(i, ring, envs, rng, mailbox) for i, ring in enumerate(rings)]
    return Rig(learner, scripted, stop, notice_writer, reader, ranks, mailbox, requests, saves, lags)


def writer_of(directory: Path, num_envs: int) -> CheckpointWriter:
    """Real checkpoints, replay included."""
    return CheckpointWriter(
        CheckpointStore(directory / "checkpoints", 3),
        save_replay=True,
        metadata={"task": "test", "num_envs": num_envs},
    )


def bursts(rig: Rig, rng: np.random.Generator, total: int) -> Callable[[bool], None]:
    """A script in which every collector writes now and then, as much as it likes, up to the run's end.

    While the learner waits, at least one of those it waits for writes, so that the run goes on.
    """

    def script(waiting: bool) -> None:
        rig.hear()
        if not waiting and rng.random() < 0.7:
            return
        for collector in rig.collectors:
            behind = collector.alive and collector.ring.committed == rig.learner.assembler.complete
            count = int(rng.integers(0, 5))
            if waiting and behind:
                count = max(1, count)
            for _ in range(count):
                if collector.alive and collector.ring.committed < total and not collector.step():
                    break

    return script
