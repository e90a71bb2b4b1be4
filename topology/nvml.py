"""The GPUs of this machine as NVML tells them. Without NVIDIA's driver there are none, which is normal."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MigSlice:
    """One MIG device of a GPU."""

    uuid: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class PhysicalGpu:
    """One GPU of the machine, in PCI order, whether or not CUDA_VISIBLE_DEVICES shows it."""

    index: int
    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    slices: tuple[MigSlice, ...] = ()


def read_nvml() -> list[PhysicalGpu] | None:
    """Asks NVML; None where there is no NVML or no driver."""
    try:
        # Imported late and by name: most machines that read this file have no NVIDIA driver.
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return [_read_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _read_gpu(nvml: Any, index: int) -> PhysicalGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    pci = _ask(nvml, lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    return PhysicalGpu(
        index=index,
        name=_text(_ask(nvml, lambda: nvml.nvmlDeviceGetName(handle))) or "unknown",
        uuid=_text(_ask(nvml, lambda: nvml.nvmlDeviceGetUUID(handle))),
        pci=_text(pci),
        memory_bytes=_memory(nvml, handle),
        slices=tuple(_slices(nvml, handle)),
    )


def _ask(nvml: Any, question: Callable[[], Any]) -> Any:
    """One answer, or None where this GPU does not give it (unified memory, virtual GPUs, MIG)."""
    try:
        return question()
    except nvml.NVMLError:
        return None


def _memory(nvml: Any, handle: Any) -> int | None:
    memory = _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None else int(memory.total)


def _slices(nvml: Any, handle: Any) -> list[MigSlice]:
    mode = _ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))
    if not mode or not mode[0]:
        return []
    found: list[MigSlice] = []
    for position in range(_ask(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        part = _ask(nvml, lambda at=position: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at))
        uuid = None if part is None else _text(_ask(nvml, lambda of=part: nvml.nvmlDeviceGetUUID(of)))
        if uuid:
            found.append(MigSlice(uuid, _memory(nvml, part)))
    return found


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)
