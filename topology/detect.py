"""Reads a machine from ``/proc`` and ``/sys`` under a root: this machine's, or a recorded tree."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from topology.cgroup import CgroupLimits, read_cgroup_limits
from topology.cpulist import format_kernel, parse
from topology.errors import MachineError
from topology.gpus import detect_gpus
from topology.machine import MachineSpec, NumaNode
from topology.nvml import PhysicalGpu
from topology.siblings import restrict
from topology.sysfiles import kib, read_cpulist, read_fields, read_int, read_text

_NODE = re.compile(r"node(\d+)")


def detect_machine(
    root: Path,
    *,
    environ: Mapping[str, str] | None = None,
    physical_gpus: Sequence[PhysicalGpu] | None = None,
) -> MachineSpec:
    """See `MachineSpec.detect`."""
    limits = read_cgroup_limits(root)
    everything = _node_cpus(root)
    status = read_fields(root / "proc/self/status")
    allowed, notes = _allowed(root, status, limits, {cpu for cpus in everything.values() for cpu in cpus})
    memory_nodes = parse(status["Mems_allowed_list"]) if "Mems_allowed_list" in status else None
    nodes = tuple(
        NumaNode(
            id=node,
            all_cpus=cpus,
            cpus=tuple(cpu for cpu in cpus if cpu in allowed),
            memory_bytes=_node_memory(root, node),
            memory_allowed=memory_nodes is None or node in memory_nodes,
        )
        for node, cpus in sorted(everything.items())
    )
    if not any(node.cpus for node in nodes):
        raise MachineError(f"no CPU that this process may use was found under {root}")
    gpus, gpu_notes = detect_gpus(root, nodes, os.environ if environ is None else environ, physical_gpus)
    meminfo = read_fields(root / "proc/meminfo")
    return MachineSpec(
        name=read_text(root / "proc/sys/kernel/hostname") or "this machine",
        arch=read_text(root / "proc/sys/kernel/arch") or platform.machine(),
        nodes=nodes,
        siblings=restrict(_sibling_groups(root, allowed), allowed),
        gpus=gpus,
        cpu_quota=limits.cpu_quota,
        memory_total=kib(meminfo.get("MemTotal")),
        memory_available=kib(meminfo.get("MemAvailable")) or kib(meminfo.get("MemFree")),
        memory_limit=limits.memory_limit,
        memory_limit_free=limits.memory_free,
        sockets=_sockets(root, everything),
        notes=(*notes, *gpu_notes),
    )


def _node_cpus(root: Path) -> dict[int, tuple[int, ...]]:
    """Online CPUs of every node; a kernel without NUMA has one node, 0."""
    found: dict[int, tuple[int, ...]] = {}
    base = root / "sys/devices/system/node"
    for folder in base.iterdir() if base.is_dir() else ():
        match = _NODE.fullmatch(folder.name)
        if match:
            found[int(match[1])] = read_cpulist(folder / "cpulist") or ()
    if any(found.values()):
        return found
    online = read_cpulist(root / "sys/devices/system/cpu/online")
    if not online:
        info = read_text(root / "proc/cpuinfo") or ""
        online = tuple(int(n) for n in re.findall(r"^processor\s*:\s*(\d+)", info, re.MULTILINE))
    if not online and root == Path("/"):
        online = tuple(sorted(os.sched_getaffinity(0)))
    return {0: online}


def _allowed(
    root: Path, status: Mapping[str, str], limits: CgroupLimits, online: set[int]
) -> tuple[set[int], tuple[str, ...]]:
    """Online CPUs within the affinity mask and the cpuset."""
    allowed = set(online)
    if "Cpus_allowed_list" in status:
        allowed &= set(parse(status["Cpus_allowed_list"]))
    elif root == Path("/"):
        allowed &= os.sched_getaffinity(0)
    # The kernel keeps the mask within the cpuset; a tree where they do not meet was recorded at two times.
    if limits.cpus and allowed.intersection(limits.cpus):
        allowed &= set(limits.cpus)
    if len(allowed) == len(online):
        return allowed, ()
    left = f"{len(allowed)} of {len(online)} CPUs: {format_kernel(allowed)}"
    return allowed, (f"affinity mask and cgroup leave this process {left}",)


def _node_memory(root: Path, node: int) -> int | None:
    text = read_text(root / f"sys/devices/system/node/node{node}/meminfo") or ""
    match = re.search(r"MemTotal:\s*(\d+) kB", text)
    return int(match[1]) * 1024 if match else None


def _sibling_groups(root: Path, cpus: set[int]) -> list[tuple[int, ...]]:
    groups: set[tuple[int, ...]] = set()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        group = read_cpulist(folder / "thread_siblings_list") or read_cpulist(folder / "core_cpus_list")
        groups.add(group or (cpu,))
    return sorted(groups)


def _sockets(root: Path, nodes: Mapping[int, tuple[int, ...]]) -> int | None:
    base = root / "sys/devices/system/cpu"
    packages = {
        read_int(base / f"cpu{cpu}/topology/physical_package_id") for cpus in nodes.values() for cpu in cpus
    }
    packages.discard(None)
    return len(packages) or None
