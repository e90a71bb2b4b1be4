"""Small recorded ``/proc`` and ``/sys`` trees, as a machine would show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topology import cpulist


@dataclass
class Tree:
    """Writes a tree; every field left out is a file that the machine does not have.

    Attributes:
        nodes: node id to CPU list; empty = a kernel without NUMA.
        siblings: groups of CPUs of one core.
        pci: PCI address to numa_node, or to a pair (numa_node, local_cpulist).
    """

    nodes: Mapping[int, str] = field(default_factory=dict)
    online: str = ""
    siblings: tuple[str, ...] = ()
    allowed: str | None = None
    mems: str | None = None
    pci: Mapping[str, int | tuple[int, str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    node_memory_kb: Mapping[int, int] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        put = lambda name, text: _put(root / name, text)  # noqa: E731
        put("proc/sys/kernel/arch", "x86_64")
        put("proc/sys/kernel/hostname", "recorded")
        put("proc/meminfo", "MemTotal:       65536000 kB\nMemFree:  1 kB\nMemAvailable:   32768000 kB")
        status = "Name:\tpython\n"
        status += f"Cpus_allowed_list:\t{self.allowed}\n" if self.allowed is not None else ""
        status += f"Mems_allowed_list:\t{self.mems}\n" if self.mems is not None else ""
        put("proc/self/status", status)
        for node, cpus in self.nodes.items():
            put(f"sys/devices/system/node/node{node}/cpulist", cpus)
            if node in self.node_memory_kb:
                put(
                    f"sys/devices/system/node/node{node}/meminfo",
                    f"Node {node} MemTotal: {self.node_memory_kb[node]} kB",
                )
        put("sys/devices/system/cpu/online", self.online or ",".join(c for c in self.nodes.values() if c))
        for group in self.siblings:
            for cpu in cpulist.parse(group):
                put(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", group)
        for address, place in self.pci.items():
            node, local = place if isinstance(place, tuple) else (place, None)
            put(f"sys/bus/pci/devices/{address}/numa_node", str(node))
            if local is not None:
                put(f"sys/bus/pci/devices/{address}/local_cpulist", local)
        for name, text in self.files.items():
            put(name, text)
        return root


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
