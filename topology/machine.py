"""What a machine is, as far as placing workers needs to know.

`MachineSpec` is frozen data. It comes from this machine (`MachineSpec.detect`), from a recorded ``/sys`` and
``/proc`` tree (the same, with another root), or from a description file (`MachineSpec.load`), so that every
layout can be computed, tested and shown without the hardware.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.gpus import PhysicalGpu

GIB = 1 << 30


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node; ids are the kernel's and need not be 0..n-1.

    Attributes:
        id: the kernel's node id.
        all_cpus: online CPUs of the node, whether or not this process may use them; ascending.
        cpus: those that this process may use (affinity mask and cpuset); ascending, may be empty.
        memory_bytes: memory on the node; 0 where it has none; None where unknown.
        memory_allowed: whether this process may allocate on the node (cpuset mems).
    """

    id: int
    all_cpus: tuple[int, ...]
    cpus: tuple[int, ...]
    memory_bytes: int | None = None
    memory_allowed: bool = True


@dataclass(frozen=True)
class Gpu:
    """One GPU that a worker of ours would see, in the order in which it would see it.

    Attributes:
        index: the device is ``cuda:<index>`` in a worker; what CUDA_VISIBLE_DEVICES leaves counts from 0.
        name: product name.
        uuid: ``GPU-...`` or ``MIG-...``; None where unknown.
        pci: address ``dddd:bb:dd.f`` in lower case; None where unknown.
        memory_bytes: device memory; None where unknown.
        numa_nodes: NUMA nodes the GPU may be on: one where it is known, none where it is not, several where
            the sources leave it open.
        physical_index: its number without CUDA_VISIBLE_DEVICES (NVML's, in PCI order).
        mig: whether it is a slice of a GPU.
    """

    index: int
    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    numa_nodes: tuple[int, ...] = ()
    physical_index: int | None = None
    mig: bool = False

    @property
    def numa_node(self) -> int | None:
        """The GPU's NUMA node, or None where it is unknown or ambiguous."""
        return self.numa_nodes[0] if len(self.numa_nodes) == 1 else None

    @property
    def device(self) -> str:
        """The device's name in a worker."""
        return f"cuda:{self.index}"


@dataclass(frozen=True)
class MachineSpec:
    """A machine as this process may use it.

    Attributes:
        name: a name for messages.
        arch: as ``uname -m`` says it.
        nodes: NUMA nodes by ascending id; a machine without NUMA has node 0.
        siblings: groups of CPUs that share one core (SMT), usable CPUs only, each CPU in exactly one group;
            ordered by their lowest CPU.
        gpus: GPUs visible to a worker.
        cpu_quota: CPUs' worth of time the cgroup grants (2.5 = two and a half); None without a quota.
        memory_total: bytes of memory; None where unknown.
        memory_available: bytes that can be had now without swapping; None where unknown.
        memory_limit: the cgroup's memory limit in bytes; None without one.
        memory_limit_free: bytes left under that limit (reclaimable page cache counted as free).
        sockets: number of sockets; None where unknown.
        notes: what was noticed while reading the machine, for the reader of a plan.
    """

    name: str
    arch: str
    nodes: tuple[NumaNode, ...]
    siblings: tuple[tuple[int, ...], ...]
    gpus: tuple[Gpu, ...] = ()
    cpu_quota: float | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    memory_limit: int | None = None
    memory_limit_free: int | None = None
    sockets: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def allowed_cpus(self) -> tuple[int, ...]:
        """Every CPU this process may use, ascending."""
        return tuple(sorted(cpu for node in self.nodes for cpu in node.cpus))

    @property
    def usable_nodes(self) -> tuple[NumaNode, ...]:
        """Nodes with at least one CPU this process may use."""
        return tuple(node for node in self.nodes if node.cpus)

    @property
    def cpu_budget(self) -> int:
        """CPUs that may be kept busy at once: the allowed ones, or fewer under a cgroup quota; at least 1."""
        count = len(self.allowed_cpus)
        return count if self.cpu_quota is None else max(1, min(count, math.floor(self.cpu_quota)))

    @property
    def memory_free(self) -> int | None:
        """Bytes that can be allocated: the smaller of available memory and what the cgroup leaves."""
        known = [
            b for b in (self.memory_available, self.memory_limit_free, self.memory_limit) if b is not None
        ]
        if not known and self.memory_total is not None:
            return self.memory_total
        return min(known) if known else None

    def node(self, node_id: int) -> NumaNode | None:
        """The node with this id, or None."""
        return next((node for node in self.nodes if node.id == node_id), None)

    @classmethod
    def detect(
        cls,
        root: str | Path = "/",
        *,
        environ: Mapping[str, str] | None = None,
        physical_gpus: Sequence[PhysicalGpu] | None = None,
    ) -> MachineSpec:
        """Reads the machine under `root`.

        Args:
            root: ``/`` for this machine; otherwise a directory with a recorded ``proc`` and ``sys``.
            environ: the environment whose CUDA_VISIBLE_DEVICES counts; this process's by default.
            physical_gpus: the machine's GPUs; by default NVML is asked (only for root ``/``), then
                ``proc/driver/nvidia`` is read.

        Raises:
            MachineError: the tree holds no usable CPU.
        """
        from topology.detect import detect_machine

        return detect_machine(Path(root), environ=environ, physical_gpus=physical_gpus)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> MachineSpec:
        """Reads a description: one JSON object, or a list of them and the `name` of one.

        Raises:
            MachineError: the file, the name or the content is wrong; a wrong name gets the nearest one.
        """
        from topology.description import load_machine

        return load_machine(Path(path), name)

    def save(self, path: str | Path) -> None:
        """Writes a description that `load` reads back as an equal machine."""
        from topology.description import save_machine

        save_machine(self, Path(path))
