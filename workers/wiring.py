"""What the supervisor makes and hands to each worker at its spawn.

Everything here travels through ``multiprocessing``'s spawn as keyword arguments: shared memory and
descriptors are duplicated into the child, configuration goes as plain values. Nothing has a name in the
file system, so nothing is left there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transport import (
    ControlBlock,
    Descriptor,
    DeviceWeightMailbox,
    PipeReader,
    PipeWriter,
    Ring,
    StartupHandshake,
    StopSignal,
    WeightMailbox,
)

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig
    from motrix_rl.envs.spec import EnvSpec

SUPERVISOR = "supervisor"
EVALUATOR = "evaluator"


def collector_name(index: int) -> str:
    """Name of a collector in logs, panel and control block."""
    return f"collector-{index}"


def learner_name(rank: int) -> str:
    """Name of a learner in logs, panel and control block."""
    return f"learner-{rank}"


@dataclass(frozen=True)
class RunFiles:
    """Where a worker writes.

    Attributes:
        run_dir: the run directory.
        log: this worker's log.
    """

    run_dir: str
    log: str


@dataclass(frozen=True)
class WorkerContext:
    """What every worker gets.

    Attributes:
        name: its name in the control block.
        config: the resolved configuration.
        env_spec: sizes and bounds of the task.
        files: where it writes.
        parent_pid: the supervisor; a worker whose parent is another process leaves.
        control: shared counters; the worker writes its own row only.
        stop: raised once by the supervisor (or by a worker that received SIGTERM), never lowered.
        handshake: slot delivery and the ready barrier.
        messages: this worker's pipe to the supervisor (the worker is its only writer).
        num_threads: intra-op threads, as the topology has it.
        incarnation: life of this worker, from 0.
        barrier: wait for the release at boot (False for a restarted collector).
    """

    name: str
    config: RootConfig
    env_spec: EnvSpec
    files: RunFiles
    parent_pid: int
    control: ControlBlock
    stop: StopSignal
    handshake: StartupHandshake
    messages: PipeWriter
    num_threads: int
    incarnation: int = 0
    barrier: bool = True


@dataclass(frozen=True)
class CollectorWiring:
    """A collector's own channels.

    Attributes:
        index: collector id.
        env_lo: first of its environments (global index).
        env_hi: one past the last.
        ring: the collector is its only producer.
        mailbox: weights; the collector is one of its readers.
        random_until: generations below this act at random (the warm-up of the first start).
        device: where its inference runs.
        start: first generation of this life of the run.
        state: file with the state to go on with to the bit, or None (deterministic mode).
        doorbell: rung when a version is published (deterministic mode), or None.
    """

    index: int
    env_lo: int
    env_hi: int
    ring: Ring
    mailbox: WeightMailbox
    random_until: int
    device: str = "cpu"
    start: int = 0
    state: str | None = None
    doorbell: int | None = None


@dataclass(frozen=True)
class GroupAddress:
    """Where the ranks of a run meet.

    Attributes:
        host: address of rank 0's machine.
        port: port of its listener.
        listener: the listening socket itself, made by the supervisor so that no other program can take the
            port; held by rank 0 alone.
    """

    host: str
    port: int
    listener: Descriptor | None = None

    def take_listener(self) -> int:
        """The listener's descriptor, which the store then owns."""
        assert self.listener is not None, "only rank 0 holds the listener"
        return os.dup(self.listener.fileno())


@dataclass(frozen=True)
class LearnerWiring:
    """A learner rank's own channels.

    Attributes:
        rank: rank on this machine.
        world_size: learners over all machines.
        device: where its networks and replay live.
        rings: rings of its collectors, by collector id; the rank is their only consumer.
        shards: ``(lo, hi)`` environment columns of each of its collectors, by collector id, counted from the
            rank's first environment.
        mailboxes: weights; this rank is their only writer (one for each NUMA node it serves; none where
            another rank does).
        notices: the supervisor's pipe to this rank.
        evaluation: rank 0 puts a policy there when it is to be evaluated; its version is the generation.
        shared_weights: that of the mailboxes which lies on this rank's device, for its own collectors; None = none.
        group: where the ranks meet; None for a single rank.
        nnodes: machines of the run.
        exclusive: every rank has a GPU of its own.
        resume: checkpoint directory to load, or None.
        continues: the collectors go on with the checkpoint's environments (deterministic mode).
    """

    rank: int
    world_size: int
    device: str
    rings: dict[int, Ring]
    shards: dict[int, tuple[int, int]]
    mailboxes: tuple[WeightMailbox, ...]
    notices: PipeReader
    evaluation: WeightMailbox
    shared_weights: DeviceWeightMailbox | None = None
    group: GroupAddress | None = None
    nnodes: int = 1
    exclusive: bool = False
    resume: str | None = None
    continues: bool = False


@dataclass(frozen=True)
class EvaluatorWiring:
    """The evaluator's own channels.

    Attributes:
        mailbox: policies to evaluate, the newest counts; learner rank 0 writes, the evaluator alone reads. A
            version is the generation that the policy has learnt up to.
        best: directory of the best policy; the evaluator is its only writer.
        best_so_far: mean return of the best policy found before a resume.
    """

    mailbox: WeightMailbox
    best: str
    best_so_far: float | None = None
