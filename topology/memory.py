"""T6: the bytes a layout takes beside the bytes that are free, before anything is started.

Rings and mailboxes are anonymous files in memory (memfd), so the size of ``/dev/shm`` does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.devices import gpu_of
from topology.errors import TopologyError
from topology.machine import GIB, MachineSpec
from topology.plan import CollectorInfo, TrainerTopology
from topology.request import TrainerRequest

MAILBOX_BUFFERS = 3
CUDA_CONTEXT_BYTES = 512 << 20
"""Device memory of one process's CUDA context with torch's kernels loaded, about."""

_TIGHT = 0.9


@dataclass(frozen=True)
class Item:
    """One line of the account: `count` things that together take `size` bytes in `place` (host, device)."""

    what: str
    place: str
    size: int
    count: int = 1


@dataclass(frozen=True)
class Finding:
    """One answer of the check; `error` means that the run would not fit."""

    level: Literal["ok", "warning", "error"]
    place: str
    needed: int
    free: int | None
    message: str


def ring_bytes(request: TrainerRequest, collector: CollectorInfo) -> int:
    """Bytes of one collector's ring."""
    slot = request.slot_header_bytes + request.slot_bytes_per_env * collector.num_envs
    return request.ring_capacity * slot


def account(topology: TrainerTopology, request: TrainerRequest) -> list[Item]:
    """What this machine's share of the run allocates, one item a place and kind.

    Not the worlds: what one takes is known only once its simulator has stepped. In `mujoco.batch` it is a few KiB,
    or 0.2 MiB for a humanoid whose body forces are kept.
    """
    items = [
        *_ring_items(topology, request),
        *_learner_items(topology, request),
        *_mailbox_items(topology, request),
    ]
    workers = len(topology.learners) + len(topology.collectors) + (topology.evaluator is not None)
    items += [Item("worker processes", "host", request.worker_host_bytes)] * workers
    items.extend(_context_items(topology))
    return _merged(items)


def _merged(items: list[Item]) -> list[Item]:
    merged: dict[tuple[str, str], Item] = {}
    for item in items:
        key = item.what, item.place
        before = merged.get(key, Item(item.what, item.place, 0, 0))
        merged[key] = Item(item.what, item.place, before.size + item.size, before.count + item.count)
    return [item for item in merged.values() if item.size]


def _ring_items(topology: TrainerTopology, request: TrainerRequest) -> list[Item]:
    items: list[Item] = []
    what = f"rings of {request.ring_capacity} slots"
    for collector in topology.collectors:
        size = ring_bytes(request, collector)
        if collector.ring == "host":
            items.append(Item(what, "host", size))
        else:
            items.append(Item(what, topology.learner(collector.owner).device, size))
            # A device slot is filled from a pinned buffer; two, so that one is written while one is copied.
            items.append(Item("pinned buffers of device rings", "host", 2 * size // request.ring_capacity))
    return items


def _learner_items(topology: TrainerTopology, request: TrainerRequest) -> list[Item]:
    items: list[Item] = []
    for learner in topology.learners:
        place = "host" if learner.device == "cpu" else learner.device
        items.append(Item("replay", place, request.replay_bytes // topology.world_size))
        items.append(Item("networks and optimisers", place, request.learner_bytes))
    return items


def _mailbox_items(topology: TrainerTopology, request: TrainerRequest) -> list[Item]:
    size = MAILBOX_BUFFERS * request.policy_bytes
    items = [Item("weight mailboxes", "host", size)] * len(topology.mailbox_nodes)
    owners = {c.owner for c in topology.collectors if c.weights == "cuda_ipc"}
    items += [Item("weight mailboxes", topology.learner(rank).device, size) for rank in sorted(owners)]
    return items


def _context_items(topology: TrainerTopology) -> list[Item]:
    users: dict[str, int] = {}
    for learner in topology.learners:
        if learner.device != "cpu":
            users[learner.device] = users.get(learner.device, 0) + 1
    for collector in topology.collectors:
        devices = {collector.inference_device} - {"cpu"}
        if "cuda_ipc" in (collector.ring, collector.weights):
            devices.add(topology.learner(collector.owner).device)
        for device in devices:
            users[device] = users.get(device, 0) + 1
    return [Item("CUDA contexts", device, n * CUDA_CONTEXT_BYTES, n) for device, n in sorted(users.items())]


def check_memory(machine: MachineSpec, topology: TrainerTopology, request: TrainerRequest) -> list[Finding]:
    """Compares what a layout needs with what there is: host memory and cgroup limit, GPUs, NUMA nodes.

    Returns:
        One finding for the host and for every GPU in use, and a warning for each NUMA node that is too small.
    """
    items = account(topology, request)
    needs: dict[str, int] = {}
    for item in items:
        needs[item.place] = needs.get(item.place, 0) + item.size
    known = machine.memory_available is not None or machine.memory_limit is not None
    there = "is free" if known else "is installed (how much of it is free is not known)"
    findings = [_compare("host", needs.pop("host", 0), machine.memory_free, _host(machine), there)]
    for device, needed in sorted(needs.items()):
        gpu = gpu_of(machine, device)
        name = f"{device} ({gpu.name})" if gpu else device
        findings.append(_compare(device, needed, gpu.memory_bytes if gpu else None, name, "is on it"))
    return [*findings, *_small_nodes(machine, topology, request)]


def require_memory(machine: MachineSpec, topology: TrainerTopology, request: TrainerRequest) -> list[Finding]:
    """`check_memory`, but what does not fit is an error.

    Raises:
        TopologyError: the run would not fit; the message names the bytes and the options that lower them.
    """
    findings = check_memory(machine, topology, request)
    faults = [finding.message for finding in findings if finding.level == "error"]
    if faults:
        raise TopologyError("; ".join(faults))
    return findings


def _host(machine: MachineSpec) -> str:
    limit, limit_free = machine.memory_limit, machine.memory_limit_free
    bound = limit_free if limit_free is not None else limit
    if bound is not None and bound == machine.memory_free:
        return f"host memory (cgroup limit {gib(limit)})"
    return "host memory"


def _compare(place: str, needed: int, free: int | None, what: str, there: str = "is free") -> Finding:
    if free is None:
        return Finding(
            "ok", place, needed, None, f"{what}: needs {gib(needed)}; how much is free is not known"
        )
    message = f"{what}: needs {gib(needed)}, {gib(free)} {there}"
    if needed > free:
        options = "algo.agent.buffer_size, num_envs or algo.trainer.async_options.ring_capacity"
        return Finding("error", place, needed, free, f"{message}; lower {options}")
    if needed > _TIGHT * free:
        return Finding("warning", place, needed, free, f"{message}, which is tight")
    return Finding("ok", place, needed, free, message)


def _small_nodes(machine: MachineSpec, topology: TrainerTopology, request: TrainerRequest) -> list[Finding]:
    findings: list[Finding] = []
    for node in machine.nodes:
        mine = [c for c in topology.collectors if c.numa_node == node.id and c.ring == "host"]
        on_cpu = [r for r in topology.learners if r.numa_node == node.id and r.device == "cpu"]
        needed = sum(ring_bytes(request, collector) for collector in mine)
        needed += len(on_cpu) * (request.replay_bytes // topology.world_size + request.learner_bytes)
        if node.memory_bytes is not None and needed > node.memory_bytes:
            message = (
                f"NUMA node {node.id}: needs {gib(needed)}, it has {gib(node.memory_bytes)}; "
                "the rest will lie on other nodes and be slower"
            )
            findings.append(Finding("warning", f"node {node.id}", needed, node.memory_bytes, message))
    return findings


def gib(size: int | None) -> str:
    """A size for people."""
    if size is None:
        return "unknown"
    for unit, scale in (("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
