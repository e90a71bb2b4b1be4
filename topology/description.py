"""Machine descriptions as JSON: read by ``plan --machine FILE``, written by ``doctor --save-machine FILE``.

One object describes one machine; a file holds one object or a list of them. ``*_gb`` is in GiB. Keys that a
report does not know are null or left out; keys that we do not know are ignored with a note.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from topology import cpulist
from topology.errors import CpuListError, MachineError
from topology.gpus import normalise_pci
from topology.machine import GIB, Gpu, MachineSpec, NumaNode
from topology.siblings import infer_node_cores, restrict


class _Entry(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class NodeEntry(_Entry):
    """A NUMA node: `cpus` in the kernel's form, "" for none."""

    id: int
    cpus: str | None = ""
    mem_gb: float | None = None
    mem_allowed: bool = True


class GpuEntry(_Entry):
    """A GPU: `numa` is a node, null, or where a source leaves it open a list of nodes ("0-1")."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    mem_gb: float | None = None
    numa: tuple[int, ...] = ()
    physical_index: int | None = None
    mig: bool = False

    @field_validator("numa", mode="before")
    @classmethod
    def _nodes(cls, value: object) -> object:
        if value is None:
            return ()
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,) if value >= 0 else ()
        if isinstance(value, str):
            text = value.strip()
            return () if text.lower() in ("", "n/a", "none", "-1") else cpulist.parse(text)
        return value


class MachineEntry(_Entry):
    """A machine. `allowed_cpus`: what affinity and cgroup leave; `siblings`: where `smt` is not enough."""

    name: str | None = None
    source_url: str | None = None
    arch: str | None = None
    sockets: int | None = None
    smt: int | None = None
    ram_gb: float | None = None
    numa: tuple[NodeEntry, ...]
    gpus: tuple[GpuEntry, ...] = ()
    allowed_cpus: str | None = None
    siblings: tuple[str, ...] | None = None
    cpu_quota: float | None = None
    available_gb: float | None = None
    cgroup_limit_gb: float | None = None
    cgroup_free_gb: float | None = None
    observed: tuple[str, ...] = ()
    notes: str | None = None


def load_machine(path: Path, name: str | None = None) -> MachineSpec:
    """See `MachineSpec.load`."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise MachineError(f"{path} is not JSON: {error}") from error
    found = _choose(data, path, name)
    try:
        return parse_machine(found)
    except (ValidationError, CpuListError) as error:
        raise MachineError(f"{path}: {_first_fault(error)}") from error


def _choose(data: object, path: Path, name: str | None) -> dict[str, Any]:
    entries = cast("list[object]", data if isinstance(data, list) else [data])
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise MachineError(f"{path} holds neither a machine (a JSON object) nor a list of machines")
    machines = cast("list[dict[str, Any]]", entries)
    names = [str(machine.get("name")) for machine in machines]
    if name is None:
        if len(machines) > 1:
            raise MachineError(
                f"{path} describes {len(machines)} machines; choose one by name: {', '.join(names)}"
            )
        return machines[0]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise MachineError(f"{path} has no machine {name!r}; the nearest name is {near[0]!r}")
    return machines[names.index(name)]


def _first_fault(error: ValidationError | CpuListError) -> str:
    if isinstance(error, CpuListError):
        return str(error)
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'machine'}: {fault['msg']}"


def parse_machine(data: dict[str, Any]) -> MachineSpec:
    """Turns one JSON object into a machine.

    Raises:
        ValidationError, CpuListError: a value has the wrong form.
        MachineError: the values contradict one another.
    """
    entry = MachineEntry.model_validate(data)
    name = entry.name or "unnamed machine"
    all_cpus = {node.id: cpulist.parse(node.cpus or "") for node in entry.numa}
    _check_consistent(name, entry, all_cpus)
    present = {cpu for cpus in all_cpus.values() for cpu in cpus}
    allowed = present if entry.allowed_cpus is None else present & set(cpulist.parse(entry.allowed_cpus))
    nodes = tuple(
        NumaNode(
            id=node.id,
            all_cpus=all_cpus[node.id],
            cpus=tuple(cpu for cpu in all_cpus[node.id] if cpu in allowed),
            memory_bytes=_bytes(node.mem_gb),
            memory_allowed=node.mem_allowed,
        )
        for node in sorted(entry.numa, key=lambda node: node.id)
    )
    return MachineSpec(
        name=name,
        arch=entry.arch or "unknown",
        nodes=nodes,
        siblings=restrict(_cores(entry, all_cpus), allowed),
        gpus=tuple(_gpu(gpu) for gpu in sorted(entry.gpus, key=lambda gpu: gpu.index)),
        cpu_quota=entry.cpu_quota,
        memory_total=_bytes(entry.ram_gb) if entry.ram_gb is not None else _sum_of_nodes(nodes),
        memory_available=_bytes(entry.available_gb),
        memory_limit=_bytes(entry.cgroup_limit_gb),
        memory_limit_free=_bytes(entry.cgroup_free_gb),
        sockets=entry.sockets,
        notes=(*entry.observed, *_unknown_keys(entry), *_cut_note(allowed, present)),
    )


def _check_consistent(name: str, entry: MachineEntry, all_cpus: dict[int, tuple[int, ...]]) -> None:
    if len(all_cpus) < len(entry.numa):
        raise MachineError(f"machine {name!r} names a NUMA node twice")
    counted = [cpu for cpus in all_cpus.values() for cpu in cpus]
    if not counted:
        raise MachineError(f"machine {name!r} has no CPU")
    if len(set(counted)) < len(counted):
        raise MachineError(f"machine {name!r} puts a CPU on two NUMA nodes")
    indices = [gpu.index for gpu in entry.gpus]
    if len(set(indices)) < len(indices) or any(index < 0 for index in indices):
        raise MachineError(f"machine {name!r}: GPU indices must differ and not be negative, not {indices}")


def _cores(entry: MachineEntry, all_cpus: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    if entry.siblings is not None:
        return [cpulist.parse(group) for group in entry.siblings]
    arch, smt = entry.arch or "", entry.smt or 1
    return [core for cpus in all_cpus.values() for core in infer_node_cores(cpus, smt, arch)]


def _gpu(entry: GpuEntry) -> Gpu:
    return Gpu(
        index=entry.index,
        name=entry.name or "unknown",
        uuid=entry.uuid,
        pci=normalise_pci(entry.pci),
        memory_bytes=_bytes(entry.mem_gb),
        numa_nodes=tuple(sorted(set(entry.numa))),
        physical_index=entry.physical_index,
        mig=entry.mig,
    )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _sum_of_nodes(nodes: tuple[NumaNode, ...]) -> int | None:
    sizes = [node.memory_bytes for node in nodes]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _unknown_keys(entry: MachineEntry) -> list[str]:
    keys = [*(entry.model_extra or ())]
    keys += [f"numa.{key}" for node in entry.numa for key in node.model_extra or ()]
    keys += [f"gpus.{key}" for gpu in entry.gpus for key in gpu.model_extra or ()]
    return [f"description: key {key!r} is not known and was ignored" for key in dict.fromkeys(keys)]


def _cut_note(allowed: set[int], present: set[int]) -> list[str]:
    if len(allowed) == len(present):
        return []
    left = f"{len(allowed)} of {len(present)} CPUs: {cpulist.format_kernel(allowed)}"
    note = f"affinity mask and cgroup leave this process {left}"
    return [note]


def save_machine(machine: MachineSpec, path: Path) -> None:
    """See `MachineSpec.save`."""
    path.write_text(json.dumps(describe_machine(machine), indent=1) + "\n", encoding="utf-8")


def describe_machine(machine: MachineSpec) -> dict[str, object]:
    """The JSON object of a machine; `parse_machine` turns it into an equal machine."""
    present = {cpu for node in machine.nodes for cpu in node.all_cpus}
    allowed = set(machine.allowed_cpus)
    cut = _cut_note(allowed, present)
    return {
        "name": machine.name,
        "source_url": None,
        "arch": machine.arch,
        "sockets": machine.sockets,
        "smt": max(map(len, machine.siblings), default=1),
        "ram_gb": _gib(machine.memory_total),
        "numa": [
            {
                "id": node.id,
                "cpus": cpulist.format_kernel(node.all_cpus),
                "mem_gb": _gib(node.memory_bytes),
                "mem_allowed": node.memory_allowed,
            }
            for node in machine.nodes
        ],
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "pci": gpu.pci,
                "mem_gb": _gib(gpu.memory_bytes),
                "numa": gpu.numa_node if len(gpu.numa_nodes) < 2 else list(gpu.numa_nodes),
                "physical_index": gpu.physical_index,
                "mig": gpu.mig,
            }
            for gpu in machine.gpus
        ],
        "allowed_cpus": cpulist.format_kernel(allowed) if allowed != present else None,
        "siblings": [cpulist.format_kernel(group) for group in machine.siblings],
        "cpu_quota": machine.cpu_quota,
        "available_gb": _gib(machine.memory_available),
        "cgroup_limit_gb": _gib(machine.memory_limit),
        "cgroup_free_gb": _gib(machine.memory_limit_free),
        "observed": [note for note in machine.notes if note not in cut],
        "notes": None,
    }
