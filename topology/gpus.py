"""T4: from the machine's GPUs to those a worker sees: CUDA_VISIBLE_DEVICES, PCI address, NUMA node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from topology.machine import Gpu, NumaNode
from topology.nvml import MigSlice, PhysicalGpu, read_nvml
from topology.sysfiles import read_cpulist, read_fields, read_int

Visible = tuple[PhysicalGpu, MigSlice | None]

_PCI = re.compile(r"^([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")


def normalise_pci(address: str | None) -> str | None:
    """Writes a PCI address as sysfs does: NVML pads the domain to eight digits, sysfs to four."""
    match = _PCI.match((address or "").strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"


def read_physical_gpus(root: Path) -> list[PhysicalGpu]:
    """The machine's GPUs: from NVML for this machine, otherwise from the driver's files under ``proc``."""
    if root == Path("/"):
        asked = read_nvml()
        if asked is not None:
            return asked
    folders = (root / "proc/driver/nvidia/gpus").glob("*")
    entries = [(normalise_pci(folder.name), read_fields(folder / "information")) for folder in folders]
    known = sorted((pci, fields) for pci, fields in entries if pci is not None)
    return [
        PhysicalGpu(index, fields.get("Model", "unknown"), fields.get("GPU UUID"), pci)
        for index, (pci, fields) in enumerate(known)
    ]


def select_visible(
    gpus: Sequence[PhysicalGpu], environ: Mapping[str, str]
) -> tuple[list[Visible], tuple[str, ...]]:
    """Applies CUDA_VISIBLE_DEVICES as CUDA does: entries count up to the first that names nothing.

    Returns:
        The GPUs in the order of their device numbers, and notes.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return _all_visible(gpus)
    entries = [entry.strip() for entry in value.split(",")]
    chosen: list[Visible] = []
    notes: list[str] = []
    for entry in entries:
        found = _find(gpus, entry)
        if found is None:
            if gpus:
                notes.append(_ended(value, entry, len(chosen)))
            break
        if found in chosen:
            return [], (f"CUDA_VISIBLE_DEVICES={value} names a GPU twice, so CUDA shows none",)
        chosen.append(found)
    slices = [item for item in chosen if item[1] is not None]
    if slices:
        notes.extend(_one_slice(len(slices)))
        chosen = slices[:1]
    if chosen:
        notes.append(f"CUDA_VISIBLE_DEVICES={value}: {_mapping(chosen)}")
    return chosen, tuple(notes)


def _all_visible(gpus: Sequence[PhysicalGpu]) -> tuple[list[Visible], tuple[str, ...]]:
    whole: list[Visible] = [(gpu, None) for gpu in gpus if not gpu.slices]
    parts: list[Visible] = [(gpu, part) for gpu in gpus for part in gpu.slices]
    if whole or not parts:
        return whole, ()
    return parts[:1], _one_slice(len(parts))


def _ended(value: str, entry: str, count: int) -> str:
    if not value.strip() or (not count and entry == "-1"):
        return f"CUDA_VISIBLE_DEVICES={value!r} hides all GPUs"
    return f"CUDA_VISIBLE_DEVICES={value}: {entry!r} names no GPU, so CUDA shows only the {count} before it"


def _one_slice(count: int) -> tuple[str, ...]:
    return (f"CUDA shows a process one MIG slice only; {count - 1} more stay unused",) if count > 1 else ()


def _mapping(chosen: Sequence[Visible]) -> str:
    return ", ".join(
        f"cuda:{i} is {'a slice of ' if part else ''}GPU {gpu.index} ({normalise_pci(gpu.pci) or 'unknown'})"
        for i, (gpu, part) in enumerate(chosen)
    )


def _find(gpus: Sequence[PhysicalGpu], entry: str) -> Visible | None:
    """The GPU or slice that one entry names: an index, a UUID, or an unambiguous beginning of one."""
    if re.fullmatch(r"\+?\d+", entry):
        index = int(entry)
        if index >= len(gpus):
            return None
        gpu = gpus[index]
        return (gpu, gpu.slices[0]) if gpu.slices else (gpu, None)
    lowered = entry.lower()
    if lowered.startswith("mig-"):
        parts: list[Visible] = [(gpu, part) for gpu in gpus for part in gpu.slices]
        return _only([item for item in parts if item[1] and item[1].uuid.lower().startswith(lowered)], entry)
    if lowered.startswith("gpu-"):
        whole: list[Visible] = [(gpu, gpu.slices[0] if gpu.slices else None) for gpu in gpus]
        return _only([item for item in whole if (item[0].uuid or "").lower().startswith(lowered)], entry)
    return None


def _only(matches: list[Visible], entry: str) -> Visible | None:
    exact = [item for item in matches if (item[1].uuid if item[1] else item[0].uuid) == entry]
    return exact[0] if len(exact) == 1 else matches[0] if len(matches) == 1 else None


def numa_nodes_of(root: Path, pci: str | None, nodes: Sequence[NumaNode]) -> tuple[int, ...]:
    """The nodes a PCI device may be on, as sysfs tells it: one, none (unknown), or several (open).

    A device without ``numa_node`` may still name the CPUs close to it, and with them a few nodes.
    """
    if pci is None:
        return ()
    folder = root / "sys/bus/pci/devices" / pci
    node = read_int(folder / "numa_node")
    if node is not None and node >= 0:
        return (node,)
    local = set(read_cpulist(folder / "local_cpulist") or ())
    with_cpus = [node for node in nodes if node.all_cpus]
    near = tuple(node.id for node in with_cpus if local.intersection(node.all_cpus))
    return near if len(near) < len(with_cpus) else ()


def detect_gpus(
    root: Path,
    nodes: Sequence[NumaNode],
    environ: Mapping[str, str],
    physical: Sequence[PhysicalGpu] | None = None,
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs a worker would see, and notes."""
    gpus = list(physical) if physical is not None else read_physical_gpus(root)
    visible, notes = select_visible(gpus, environ)
    places = {gpu.index: numa_nodes_of(root, normalise_pci(gpu.pci), nodes) for gpu in gpus}
    mixed = len({gpu.name for gpu in gpus}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    by_uuid = "gpu-" in environ.get("CUDA_VISIBLE_DEVICES", "").lower()
    if mixed and not by_uuid and visible and len(set(places.values())) > 1:
        # CUDA numbers unlike GPUs by speed, NVML by PCI address: only the user can say which is which.
        everywhere = tuple(sorted({node for found in places.values() for node in found}))
        places = dict.fromkeys(places, everywhere)
        notes = (
            *notes,
            "GPUs of several models: CUDA numbers them by speed, so their NUMA nodes are not certain; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID to number them by PCI address",
        )
    result = tuple(
        Gpu(
            index=index,
            name=gpu.name,
            uuid=part.uuid if part else gpu.uuid,
            pci=normalise_pci(gpu.pci),
            memory_bytes=part.memory_bytes if part else gpu.memory_bytes,
            numa_nodes=places[gpu.index],
            physical_index=gpu.index,
            mig=part is not None,
        )
        for index, (gpu, part) in enumerate(visible)
    )
    return result, notes
