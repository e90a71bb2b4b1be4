"""Which NUMA node each learner rank, and with it its collectors, belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from topology.cpulist import format_kernel
from topology.devices import gpu_of
from topology.errors import RequestError
from topology.machine import Gpu, MachineSpec


@dataclass(frozen=True)
class Wishes:
    """CPUs that a user reserved for collectors or learners; None where nothing was said."""

    collectors: frozenset[int] | None
    learners: frozenset[int] | None

    def fit(self, cpus: tuple[int, ...]) -> bool:
        """Whether both kinds of worker find a CPU among `cpus`."""
        return all(wish is None or wish.intersection(cpus) for wish in (self.collectors, self.learners))


def place_ranks(
    machine: MachineSpec, devices: tuple[str, ...], wishes: Wishes
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The NUMA node of each rank, None for a rank that stays unpinned, and the reasons.

    A rank follows its GPU. Where the GPU's node is unknown, ambiguous or has no usable CPU, it goes to the only
    usable node if there is just one, and otherwise stays unpinned. CPU ranks go round the nodes, largest first.

    Raises:
        RequestError: a user's CPU list leaves a rank or its collectors without a CPU.
    """
    nodes: list[int | None] = []
    notes: list[str] = []
    cpu_nodes = sorted(machine.usable_nodes, key=lambda node: (-len(node.cpus), node.id))
    cpu_nodes = [node for node in cpu_nodes if wishes.fit(node.cpus)] or cpu_nodes
    cpu_ranks = 0
    for rank, device in enumerate(devices):
        gpu = gpu_of(machine, device)
        if gpu is None:
            node: int | None = cpu_nodes[cpu_ranks % len(cpu_nodes)].id
            cpu_ranks += 1
            if len(machine.usable_nodes) > 1:
                notes.append(
                    f"rank {rank} (cpu): NUMA node {node}; CPU ranks go round the nodes, most CPUs first"
                )
        else:
            node, note = _follow_gpu(machine, gpu)
            notes.append(f"rank {rank} ({device}): {note}")
        _check_wishes(machine, wishes, rank, device, node)
        nodes.append(node)
    return tuple(nodes), tuple(notes)


def _follow_gpu(machine: MachineSpec, gpu: Gpu) -> tuple[int | None, str]:
    usable = [node.id for node in machine.usable_nodes]
    candidates = [node for node in gpu.numa_nodes if node in usable]
    if len(gpu.numa_nodes) == 1 and candidates:
        return candidates[0], f"NUMA node {candidates[0]}, where its GPU is"
    why = _why_not(machine, gpu)
    if len(candidates) == 1:
        return candidates[0], f"{why}; NUMA node {candidates[0]} is the only one of them with CPUs we may use"
    if len(usable) == 1:
        return usable[0], f"{why}; fallback: NUMA node {usable[0]}, the only one with CPUs we may use"
    return None, (
        f"{why}, and several nodes have CPUs; fallback: unpinned, its CPUs are spread over nodes and memory goes "
        "where it is first touched"
    )


def _why_not(machine: MachineSpec, gpu: Gpu) -> str:
    if not gpu.numa_nodes:
        return "the NUMA node of its GPU is unknown"
    if len(gpu.numa_nodes) > 1:
        return f"the NUMA node of its GPU is ambiguous (one of {format_kernel(gpu.numa_nodes)})"
    node = machine.node(gpu.numa_nodes[0])
    if node is None:
        return f"its GPU reports NUMA node {gpu.numa_nodes[0]}, which this machine does not show"
    if not node.all_cpus:
        return f"its GPU reports NUMA node {node.id}, which has no CPUs"
    return (
        f"its GPU is on NUMA node {node.id}, of whose CPUs ({format_kernel(node.all_cpus)}) we may use none"
    )


def _check_wishes(machine: MachineSpec, wishes: Wishes, rank: int, device: str, node_id: int | None) -> None:
    if node_id is None:
        return
    node = machine.node(node_id)
    assert node is not None
    for option, wish in (("collector_cpu_cores", wishes.collectors), ("learner_cpu_cores", wishes.learners)):
        if wish is not None and not wish.intersection(node.cpus):
            raise RequestError(
                f"{option} has no CPU on NUMA node {node_id}, where rank {rank} ({device}) and its collectors go; "
                f"add some of {format_kernel(node.cpus)}"
            )
