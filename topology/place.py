"""T1: which NUMA node each learner rank, and with it its collectors, belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from topology.cpulist import format_kernel
from topology.devices import gpu_of
from topology.errors import RequestError
from topology.machine import Gpu, MachineSpec, NumaNode


@dataclass(frozen=True)
class Wishes:
    """CPUs that a user named for collectors or learners; None where nothing was said."""

    collectors: frozenset[int] | None
    learners: frozenset[int] | None

    @property
    def given(self) -> bool:
        return self.collectors is not None or self.learners is not None

    def fit(self, cpus: tuple[int, ...]) -> bool:
        """Whether both kinds of worker find a CPU among `cpus`."""
        return all(wish is None or wish.intersection(cpus) for wish in (self.collectors, self.learners))


def place_ranks(
    machine: MachineSpec, devices: tuple[str, ...], wishes: Wishes
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The NUMA node of each rank, None for a rank that stays unpinned, and the reasons.

    A rank follows its GPU. Where the GPU's node is unknown, ambiguous or has no usable CPU, it goes to the
    only usable node if there is just one, and otherwise stays unpinned. A CPU rank goes where most CPUs are
    left for a rank.

    Raises:
        RequestError: a user's CPU list leaves a rank or its collectors without a CPU.
    """
    nodes: dict[int, int | None] = {}
    reasons: dict[int, str] = {}
    for rank, device in enumerate(devices):
        gpu = gpu_of(machine, device)
        if gpu is not None:
            nodes[rank], reasons[rank] = _follow_gpu(machine, gpu)
    homes = _homes_of_cpu_ranks(machine, wishes)
    ranks_at = {node.id: sum(1 for found in nodes.values() if found == node.id) for node in homes}
    for rank in range(len(devices)):
        if rank not in nodes:
            home = max(
                homes,
                key=lambda node: (len(node.cpus) / (ranks_at[node.id] + 1), -ranks_at[node.id], -node.id),
            )
            ranks_at[home.id] += 1
            nodes[rank] = home.id
            if len(machine.usable_nodes) > 1:
                reasons[rank] = f"NUMA node {home.id}, where most CPUs were left for a rank"
    for rank, device in enumerate(devices):
        _check_wishes(machine, wishes, f"rank {rank} ({device})", nodes[rank])
    notes = [f"rank {rank} ({devices[rank]}): {reasons[rank]}" for rank in sorted(reasons)]
    placed = tuple(nodes[rank] for rank in range(len(devices)))
    return placed, (*notes, *_memory_notes(machine, placed))


def _homes_of_cpu_ranks(machine: MachineSpec, wishes: Wishes) -> list[NumaNode]:
    usable = list(machine.usable_nodes)
    return [node for node in usable if wishes.fit(node.cpus)] or usable


def _follow_gpu(machine: MachineSpec, gpu: Gpu) -> tuple[int | None, str]:
    usable = [node.id for node in machine.usable_nodes]
    candidates = [node for node in gpu.numa_nodes if node in usable]
    if gpu.numa_node is not None and candidates:
        return gpu.numa_node, f"NUMA node {gpu.numa_node}, where its GPU is"
    why = _why_not(machine, gpu)
    if len(candidates) == 1:
        return candidates[0], f"{why}; NUMA node {candidates[0]} is the only one of them with CPUs we may use"
    if len(usable) == 1:
        return usable[0], f"{why}; fallback: NUMA node {usable[0]}, the only one with CPUs we may use"
    return None, (
        f"{why}, and several nodes have CPUs; fallback: unpinned, memory goes where it is first touched"
    )


def _why_not(machine: MachineSpec, gpu: Gpu) -> str:
    if len(gpu.numa_nodes) > 1:
        return f"the NUMA node of its GPU is ambiguous (one of {format_kernel(gpu.numa_nodes)})"
    if gpu.numa_node is None:
        return "the NUMA node of its GPU is unknown"
    node = machine.node(gpu.numa_node)
    if node is None:
        return f"its GPU reports NUMA node {gpu.numa_node}, which this machine does not show"
    if not node.all_cpus:
        return f"its GPU reports NUMA node {node.id}, which has no CPUs"
    return (
        f"its GPU is on NUMA node {node.id}, of whose CPUs ({format_kernel(node.all_cpus)}) we may use none"
    )


def _check_wishes(machine: MachineSpec, wishes: Wishes, who: str, node_id: int | None) -> None:
    node = None if node_id is None else machine.node(node_id)
    if node is None:
        return
    for option, wish in (("collector_cpu_cores", wishes.collectors), ("learner_cpu_cores", wishes.learners)):
        if wish is not None and not wish.intersection(node.cpus):
            raise RequestError(
                f"{option} has no CPU on NUMA node {node_id}, where {who} and its collectors go; "
                f"add some of {format_kernel(node.cpus)}"
            )


def _memory_notes(machine: MachineSpec, placed: tuple[int | None, ...]) -> list[str]:
    """Nodes in use from which no memory can be had; binding then leaves memory to the kernel."""
    used = [node for node in machine.nodes if node.id in placed]
    return [
        f"NUMA node {node.id} has no memory that we may use; its workers' memory comes from the nearest"
        for node in used
        if node.memory_bytes == 0 or not node.memory_allowed
    ]
