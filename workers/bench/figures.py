"""Repeated measurements, and the words for them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topology import MachineSpec


@dataclass(frozen=True)
class Figure:
    """One quantity, measured several times.

    Attributes:
        values: the measurements, in the order they were taken.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median: the noise."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def times(self, factor: float) -> Figure:
        """The same in another unit."""
        return Figure(tuple(value * factor for value in self.values))

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "spread": self.spread,
            "values": list(self.values),
        }

    def text(self, digits: int = 0) -> str:
        """`median (min to max)`."""
        low, high = min(self.values), max(self.values)
        return f"{self.median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def figure(values: Sequence[float]) -> Figure:
    """Of at least one measurement."""
    assert values
    return Figure(tuple(float(value) for value in values))


def machine_line(machine: MachineSpec) -> str:
    """The machine and the versions that a figure belongs to, in one line."""
    gpus = [gpu.name for gpu in machine.gpus]
    parts = [
        f"{len(machine.allowed_cpus)} CPUs of {cpu_model()}",
        f"GPUs: {', '.join(gpus)}" if gpus else "no GPU",
        *(f"{name} {_version(name)}" for name in ("torch", "mujoco", "numpy")),
        # A busy machine explains a figure that another day does not repeat.
        f"load {os.getloadavg()[0]:.1f} before",
    ]
    return ", ".join(parts)


def cpu_model() -> str:
    """Name of the processor; its architecture where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
