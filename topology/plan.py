"""A resolved layout: who runs where, on which CPUs, through which transport, and why.

`TrainerTopology` is computed once, by `topology.resolve.resolve_trainer_topology`. Workers apply their entry
and compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")

Channel = Literal["host", "cuda_ipc"]


@dataclass(frozen=True)
class LearnerInfo:
    """One learner rank.

    Attributes:
        rank: its rank over all machines.
        local_rank: its rank on this machine.
        device: ``cpu`` or ``cuda:N``.
        numa_node: the node it is bound to; None = bound to CPUs of several nodes, memory follows first touch.
        cpus: the CPUs it may run on.
        threads: intra-op threads; the same number on every rank of this machine, at most ``len(cpus)``.
        batch_size: its share of every batch.
        inference_device: where the collectors that it owns run the policy.
    """

    rank: int
    local_rank: int
    device: str
    numa_node: int | None
    cpus: tuple[int, ...]
    threads: int
    batch_size: int
    inference_device: str


@dataclass(frozen=True)
class CollectorInfo:
    """One collector.

    Attributes:
        id: its number over all machines.
        local_index: its number on this machine.
        owner: the rank that consumes its ring.
        num_envs: width of its shard.
        env_lo: first environment of its shard, over all machines.
        numa_node: its owner's node.
        cpus: the CPUs it may run on.
        threads: threads for stepping and inference, at most ``len(cpus)``.
        inference_device: ``cpu`` or ``cuda:N``.
        ring: where its ring's slots live.
        weights: where the mailbox lives that it reads.
    """

    id: int
    local_index: int
    owner: int
    num_envs: int
    env_lo: int
    numa_node: int | None
    cpus: tuple[int, ...]
    threads: int
    inference_device: str
    ring: Channel
    weights: Channel


@dataclass(frozen=True)
class EvaluatorInfo:
    """The evaluator of this machine; `shared` says that its CPUs also belong to another worker."""

    numa_node: int | None
    cpus: tuple[int, ...]
    threads: int
    shared: bool


@dataclass(frozen=True)
class TrainerTopology:
    """The layout of one machine's share of a run.

    Held by construction: a collector is on its owner's NUMA node; CPU lists of different workers are disjoint
    unless `cpus_shared`; shards, owners and batches divide exactly.

    Attributes:
        learners: by rank.
        collectors: by id; those of one rank are neighbours.
        evaluator: None where none was asked for, or where another machine runs it.
        num_envs: environments over all machines.
        batch_size: batch over all ranks.
        world_size: ranks over all machines.
        nnodes: machines.
        node_rank: this machine.
        cpus_shared: there were too few CPUs, and some worker shares one with another (evaluator aside).
        mailbox_nodes: NUMA nodes that get a host mailbox, with the rank that writes it; node None = unpinned.
        notes: the reason of every choice, in the order in which they were made.
    """

    learners: tuple[LearnerInfo, ...]
    collectors: tuple[CollectorInfo, ...]
    evaluator: EvaluatorInfo | None
    num_envs: int
    batch_size: int
    world_size: int
    nnodes: int
    node_rank: int
    cpus_shared: bool
    mailbox_nodes: tuple[tuple[int | None, int], ...]
    notes: tuple[str, ...]

    @property
    def env_shards(self) -> list[tuple[int, int]]:
        """Environments ``[lo, hi)`` of each collector of this machine, numbered over all machines."""
        return [(c.env_lo, c.env_lo + c.num_envs) for c in self.collectors]

    @property
    def batch_size_per_rank(self) -> int:
        """Samples of one update that each rank draws."""
        return self.batch_size // self.world_size

    def learner(self, rank: int) -> LearnerInfo:
        """The learner with this rank (over all machines), which must be on this machine."""
        for info in self.learners:
            if info.rank == rank:
                return info
        raise ValueError(
            f"rank {rank} is not on this machine; it has {[info.rank for info in self.learners]}"
        )

    def collector_owner(self, collector_id: int) -> int:
        """The rank that owns this collector (id over all machines), which must be on this machine."""
        for info in self.collectors:
            if info.id == collector_id:
                return info.owner
        raise ValueError(f"collector {collector_id} is not on this machine; it has ids {self._ids()}")

    def ring_slice_for_rank(self, rings: Sequence[T], rank: int) -> Sequence[T]:
        """The rings that `rank` consumes, out of one ring a collector of this machine, in order."""
        if len(rings) != len(self.collectors):
            raise ValueError(f"{len(rings)} rings for {len(self.collectors)} collectors")
        self.learner(rank)
        owned = [c.local_index for c in self.collectors if c.owner == rank]
        return rings[owned[0] : owned[-1] + 1]

    def _ids(self) -> str:
        return f"{self.collectors[0].id}..{self.collectors[-1].id}"
