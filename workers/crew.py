"""Who is on a run: makes each worker's context, starts it, starts it again, and knows when it may leave."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from topology import CollectorInfo, EvaluatorInfo, LearnerInfo
from transport import (
    PARENT,
    PipeReader,
    StopReason,
    TransportError,
    WeightMailbox,
    message_pipe,
    sweep_torch_shm,
)
from workers.collector_state import collector_file
from workers.decision import warmup_generations
from workers.fleet import Fleet, Placement, Worker
from workers.outcome import explained
from workers.planning import TrainingPlan
from workers.resources import RunResources
from workers.restarts import CollectorRestarts
from workers.resume import RunStart, best_return
from workers.wiring import (
    EVALUATOR,
    CollectorWiring,
    EvaluatorWiring,
    LearnerWiring,
    RunFiles,
    WorkerContext,
    collector_name,
    learner_name,
)

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

log = logging.getLogger(__name__)

MAX_EVALUATOR_RESTARTS = 3


class Crew:
    """Starts the workers of one run and answers questions about them.

    Args:
        config: the resolved configuration.
        plan: who runs where.
        start: run directory and resume point.
        resources: what the workers share.
        fleet: holds the processes.
    """

    def __init__(
        self, config: RootConfig, plan: TrainingPlan, start: RunStart, resources: RunResources, fleet: Fleet
    ) -> None:
        self._config = config
        self._topology = plan.topology
        self._spec = plan.env_spec
        self._start = start
        self._resources = resources
        self._fleet = fleet
        self._total = config.algo.trainer.num_learning_iterations
        limit = config.algo.trainer.async_options.max_collector_restarts
        self._restarts = {info.id: CollectorRestarts(limit) for info in plan.topology.collectors}
        self._waits: dict[int, float] = {}
        self._recovering: set[int] = set()
        self._due: dict[int, float] = {}

    # Starting -----------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Spawns whom the first update needs: learners first, since they take the longest to boot."""
        for learner in self._topology.learners:
            self._start_learner(learner)
        for collector in self._topology.collectors:
            self._start_collector(collector, 0)

    def start_evaluator(self, incarnation: int = 0) -> bool:
        """Spawns the evaluator, if this machine has one, once the others are at work.

        Nothing waits for it, and its imports would take half a core from a collector's.

        Returns:
            False where it cannot be started, which costs the run its evaluations and nothing else.
        """
        if self._topology.evaluator is None:
            return True
        try:
            self._start_evaluator(self._topology.evaluator, incarnation)
        except (OSError, TransportError) as fault:
            log.error("the evaluator cannot be started: %s", explained(fault))
            return False
        return True

    def _context(
        self, name: str, threads: int, incarnation: int, serves: list[str]
    ) -> tuple[WorkerContext, PipeReader]:
        """A worker's context and our end of its pipe; ``serves`` names collectors whose slots it handles."""
        reader, writer = message_pipe()
        directory = self._start.directory
        context = WorkerContext(
            name=name,
            config=self._config,
            env_spec=self._spec,
            files=RunFiles(str(directory.path), str(directory.log_path(name))),
            parent_pid=os.getpid(),
            control=self._resources.control,
            stop=self._resources.stop,
            handshake=self._resources.handshake.for_worker(serves),
            messages=writer,
            num_threads=threads,
            incarnation=incarnation,
            barrier=incarnation == 0,
        )
        return context, reader

    def _start_learner(self, info: LearnerInfo) -> None:
        owned = [c for c in self._topology.collectors if c.owner == info.rank]
        first = owned[0].env_lo
        shared = self._resources.shared_weights.get(info.rank)
        wiring = LearnerWiring(
            rank=info.rank,
            world_size=self._topology.world_size,
            device=info.device,
            rings={c.id: self._resources.rings[c.id] for c in owned},
            shards={c.id: (c.env_lo - first, c.env_lo - first + c.num_envs) for c in owned},
            mailboxes=tuple(
                self._resources.mailboxes[node]
                for node, rank in self._topology.mailbox_nodes
                if rank == info.rank
            )
            + (() if shared is None else (shared,)),
            shared_weights=shared,
            notices=self._resources.notices[info.rank][0],
            evaluation=self._resources.evaluation,
            group=self._resources.group_address(info.rank),
            nnodes=self._topology.nnodes,
            exclusive=len({learner.device for learner in self._topology.learners})
            == len(self._topology.learners),
            resume=None if self._start.checkpoint is None else str(self._start.checkpoint),
            continues=self._start.continues,
        )
        context, reader = self._context(
            learner_name(info.rank), info.threads, 0, [collector_name(c.id) for c in owned]
        )
        self._fleet.start(
            "learner", context, wiring, Placement(info.cpus, info.numa_node, info.threads), reader
        )

    def _start_collector(self, info: CollectorInfo, incarnation: int) -> None:
        agent = self._config.algo.agent
        name = collector_name(info.id)
        wiring = CollectorWiring(
            index=info.id,
            env_lo=info.env_lo,
            env_hi=info.env_lo + info.num_envs,
            ring=self._resources.rings[info.id],
            mailbox=self._mailbox(info),
            random_until=warmup_generations(agent.learning_starts, self._config.num_envs, agent.n_step),
            device=info.inference_device,
            start=self._start.generation,
            state=self._saved_state(info) if incarnation == 0 else None,
            doorbell=info.local_index if self._config.deterministic else None,
        )
        self._restarts[info.id].born(self._resources.rings[info.id].committed)
        context, reader = self._context(name, info.threads, incarnation, [name])
        self._fleet.start(
            "collector", context, wiring, Placement(info.cpus, info.numa_node, info.threads), reader
        )

    def _mailbox(self, info: CollectorInfo) -> WeightMailbox:
        if info.weights == "cuda_ipc":
            return self._resources.shared_weights[info.owner]
        nodes = self._resources.mailboxes
        return nodes[info.numa_node if info.numa_node in nodes else next(iter(nodes))]

    def _saved_state(self, info: CollectorInfo) -> str | None:
        if not self._start.continues:
            return None
        assert self._start.checkpoint is not None
        return str(self._start.checkpoint / collector_file(info.id))

    def _start_evaluator(self, info: EvaluatorInfo, incarnation: int) -> None:
        wiring = EvaluatorWiring(
            mailbox=self._resources.evaluation,
            best=str(self._start.directory.best),
            # A successor must not replace what the one before it has kept by something worse.
            best_so_far=best_return(self._start.directory) if incarnation else self._start.best_return,
        )
        threads = self._config.eval.num_threads or info.threads
        context, reader = self._context(EVALUATOR, threads, incarnation, [])
        self._fleet.start("evaluator", context, wiring, Placement(info.cpus, info.numa_node, threads), reader)

    # Questions ----------------------------------------------------------------------------------------------

    def not_ready(self) -> list[str]:
        """Workers that have not reported ready."""
        ready = set(self._resources.handshake.ready_workers())
        return [name for name in self._fleet.workers if name not in ready]

    def learners_done(self) -> bool:
        """Whether every rank has left, having done all it had to."""
        return all(w.exit_code == 0 for w in self._fleet.workers.values() if w.role == "learner")

    def lost_a_learner(self) -> bool:
        """Whether a rank has failed: what needs all ranks, such as a save, will never be complete."""
        return any(w.exit_code not in (None, 0) for w in self._fleet.workers.values() if w.role == "learner")

    def may_leave(self, worker: Worker) -> bool:
        """Whether a worker that exited with 0 had reason to: stop is raised, or its part is done."""
        if self._resources.stop.is_set():
            return True
        rows = {row.name: row for row in self._resources.control.snapshot()}
        reference = learner_name(0) if worker.role == "evaluator" else worker.name
        return rows[reference].generation >= self._total

    # Starting again -----------------------------------------------------------------------------------------

    def restart_evaluator(self, worker: Worker) -> bool:
        """Starts a dead evaluator again, unless that was done often enough; its death never ends a run.

        Returns:
            Whether it was started.
        """
        if self._resources.stop.is_set() or worker.incarnation >= MAX_EVALUATOR_RESTARTS:
            return False
        self._resources.control.reset(worker.name)
        return self.start_evaluator(worker.incarnation + 1)

    def begin_restart(self, worker: Worker) -> str | None:
        """Tells a dead collector's owner to put its ring in order; the successor starts when it has.

        Returns:
            None when that has begun; else why it is not started again, empty where nothing is to be said.
        """
        if self._resources.stop.is_set():
            return ""
        info = self._collector(worker)
        wait = self._restarts[info.id].another(time.monotonic(), self._resources.rings[info.id].committed)
        if isinstance(wait, str):
            return wait
        self._waits[info.id] = wait
        self._recovering.add(info.id)
        notice = {"kind": "collector_lost", "collector": info.id, "incarnation": worker.incarnation}
        told = self._resources.notices[info.owner][1].send(notice, timeout_s=1.0)
        return None if told else f"{learner_name(info.owner)} did not hear of it"

    def finish_restart(self, collector: int, generation: int) -> None:
        """The ring is in order; the successor starts at ``generation``, after a wait if it has died often."""
        if collector not in self._recovering:
            return
        self._recovering.discard(collector)
        before = self._fleet.workers[collector_name(collector)]
        assert not before.alive, f"collector {collector} is still alive at generation {generation}"
        self._due[collector] = time.monotonic() + self._waits.pop(collector)

    @property
    def starting(self) -> bool:
        """Whether a successor waits for its time."""
        return bool(self._due)

    def start_due(self) -> None:
        """Starts the successors whose wait is over; called at every turn."""
        for collector in [c for c, when in self._due.items() if when <= time.monotonic()]:
            del self._due[collector]
            if self._resources.stop.is_set():
                return
            info = next(c for c in self._topology.collectors if c.id == collector)
            before = self._fleet.workers[collector_name(collector)]
            self._resources.control.reset(before.name)
            self._start_collector(info, before.incarnation + 1)

    def has_collected_all(self, worker: Worker) -> bool:
        """Whether it is a collector that has done its part, so that its end, however it came, costs nothing."""
        if worker.role != "collector":
            return False
        return self._resources.rings[self._collector(worker).id].committed >= self._total

    def _collector(self, worker: Worker) -> CollectorInfo:
        return next(c for c in self._topology.collectors if collector_name(c.id) == worker.name)

    # Ending -------------------------------------------------------------------------------------------------

    def stop(self, reason: StopReason, culprit: str | None) -> None:
        """Raises stop for everybody; the first reason stays."""
        self._resources.control.set_stop(reason, PARENT if culprit is None else culprit)
        self._resources.stop.set()

    def sweep(self) -> None:
        """Removes what torch's CUDA sharing leaves in ``/dev/shm`` for processes that were ours."""
        sweep_torch_shm(self._fleet.lost_pids)
