"""Which cores each group of ranks is dealt from: one pool a NUMA node, and one for unpinned ranks.

A core is a group of usable CPUs that share it (SMT siblings); a pool is a list of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.cpulist import format_kernel
from topology.machine import MachineSpec
from topology.place import Wishes

Core = tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    """What one region is dealt from.

    Attributes:
        node: the NUMA node; None = ranks that stay unpinned.
        ranks: local ranks of the region.
        cores: cores for everyone; for learners only where `collector_cores` is given.
        collector_cores: cores for collectors, where a user's CPU list tells them apart.
    """

    node: int | None
    ranks: tuple[int, ...]
    cores: tuple[Core, ...]
    collector_cores: tuple[Core, ...] | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        return flatten(self.cores)

    @property
    def name(self) -> str:
        return "unpinned CPUs" if self.node is None else f"NUMA node {self.node}"


def flatten(cores: Iterable[Core]) -> tuple[int, ...]:
    """All CPUs of these cores, ascending."""
    return tuple(sorted(cpu for core in cores for cpu in core))


def node_cores(machine: MachineSpec, cpus: Iterable[int]) -> tuple[Core, ...]:
    """The cores of a set of CPUs, ordered by lowest CPU."""
    wanted = set(cpus)
    kept = (tuple(cpu for cpu in group if cpu in wanted) for group in machine.siblings)
    return tuple(sorted(core for core in kept if core))


def build_pools(
    machine: MachineSpec, rank_nodes: Sequence[int | None], wishes: Wishes
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Divides the usable cores among the regions that have ranks.

    Returns:
        The pools, by first rank, and notes.
    """
    if wishes.given:
        return _pools_of_wishes(machine, rank_nodes, wishes)
    per_node = {node.id: node_cores(machine, node.cpus) for node in machine.usable_nodes}
    regions = _divide_regions(per_node, rank_nodes)
    pools = [Pool(region, _members(rank_nodes, region), cores) for region, cores in regions.items()]
    cut, quota_notes = _apply_quota(machine, pools, len(rank_nodes))
    return cut, (*(_unpinned_note(machine, pool) for pool in cut if pool.node is None), *quota_notes)


def _members(rank_nodes: Sequence[int | None], region: int | None) -> tuple[int, ...]:
    return tuple(rank for rank, node in enumerate(rank_nodes) if node == region)


def _pools_of_wishes(
    machine: MachineSpec, rank_nodes: Sequence[int | None], wishes: Wishes
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Pools within the user's lists; what one names is kept from the other kind of worker where it can be."""

    def divided(
        own: frozenset[int] | None, other: frozenset[int] | None
    ) -> dict[int | None, tuple[Core, ...]]:
        per_node: dict[int, tuple[Core, ...]] = {}
        for node in machine.usable_nodes:
            here = set(node.cpus)
            cpus = here & own if own is not None else here.difference(other or ()) or here
            if cpus:
                per_node[node.id] = node_cores(machine, cpus)
        return _divide_regions(per_node, rank_nodes)

    learners = divided(wishes.learners, wishes.collectors)
    collectors = divided(wishes.collectors, wishes.learners)
    pools = [
        Pool(region, _members(rank_nodes, region), cores, collectors[region])
        for region, cores in learners.items()
    ]
    notes = ["CPU lists as asked for (collector_cpu_cores, learner_cpu_cores)"]
    if machine.cpu_budget < len(machine.allowed_cpus):
        notes.append(f"the cgroup grants {machine.cpu_quota:g} CPUs of time, whatever these lists name")
    return tuple(pools), tuple(notes)


def _divide_regions(
    per_node: dict[int, tuple[Core, ...]], rank_nodes: Sequence[int | None]
) -> dict[int | None, tuple[Core, ...]]:
    """The cores of each region, by first rank.

    Unpinned ranks are dealt from the nodes where no rank is pinned, and where there is none, get their fair
    part of every node. Their cores are ordered round the nodes, so that any chunk spans them evenly.
    """
    unpinned: list[tuple[Core, ...]] = []
    count = sum(1 for node in rank_nodes if node is None)
    if count:
        unpinned = [cores for node, cores in per_node.items() if node not in rank_nodes]
        unpinned = unpinned or _cut_from_every_node(per_node, count / len(rank_nodes))
    regions = dict.fromkeys(rank_nodes)
    return {region: interleave(unpinned) if region is None else per_node[region] for region in regions}


def _unpinned_note(machine: MachineSpec, pool: Pool) -> str:
    cpus = set(pool.cpus)
    nodes = format_kernel(node.id for node in machine.usable_nodes if cpus.intersection(node.cpus))
    ranks = format_kernel(pool.ranks)
    return f"unpinned: rank(s) {ranks} and their collectors get CPUs of NUMA node(s) {nodes}, evenly"


def _cut_from_every_node(per_node: dict[int, tuple[Core, ...]], share: float) -> list[tuple[Core, ...]]:
    """Takes `share` of every node's cores out of `per_node`; CPUs where a node has but one core."""
    taken: list[tuple[Core, ...]] = []
    for node, cores in per_node.items():
        units = cpu_slots(cores, 2)[0]
        keep = max(1, len(units) - max(1, round(len(units) * share)))
        taken.append(units[keep:])
        per_node[node] = units[:keep]
    # One CPU a node is nothing to divide: they share, and the plan says so.
    return taken if any(taken) else list(per_node.values())


def interleave(nodes: Sequence[Sequence[Core]]) -> tuple[Core, ...]:
    """Orders cores of several nodes so that every stretch of them takes from all nodes in proportion."""
    placed = [
        ((i + 0.5) / len(cores), n, core) for n, cores in enumerate(nodes) for i, core in enumerate(cores)
    ]
    return tuple(core for _, _, core in sorted(placed))


def _apply_quota(
    machine: MachineSpec, pools: list[Pool], ranks: int
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Cuts the pools down to the CPU time that the cgroup grants, one thread a core while there are cores."""
    budget = machine.cpu_budget
    if budget >= len(machine.allowed_cpus):
        return tuple(pools), ()
    cut: list[Pool] = []
    for pool in pools:
        share = max(1, budget * len(pool.ranks) // ranks)
        # Two threads of one core count twice against the quota and do less than two cores.
        order = [core[i] for i in range(max(map(len, pool.cores))) for core in pool.cores if i < len(core)]
        chosen = set(order[:share])
        cores = (tuple(cpu for cpu in core if cpu in chosen) for core in pool.cores)
        cut.append(Pool(pool.node, pool.ranks, tuple(core for core in cores if core)))
    note = (
        f"the cgroup grants {machine.cpu_quota:g} CPUs of time for {len(machine.allowed_cpus)} allowed CPUs; "
        f"{sum(len(pool.cpus) for pool in cut)} of them are used, so that threads are not throttled "
        "(other jobs may choose the same ones; collector_cpu_cores and learner_cpu_cores name others)"
    )
    return tuple(cut), (note,)


def cpu_slots(cores: Sequence[Core], workers: int) -> tuple[tuple[Core, ...], bool]:
    """The units to deal among `workers`: whole cores while there are enough, otherwise single CPUs.

    Returns:
        The units, and whether siblings were separated.
    """
    if len(cores) >= workers:
        return tuple(cores), False
    singles: tuple[Core, ...] = tuple((cpu,) for core in cores for cpu in core)
    return singles, any(len(core) > 1 for core in cores)
