"""What `doctor` looks at. Loads neither torch nor mujoco: versions are read from the installed metadata."""

from __future__ import annotations

import ctypes.util
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from motrix_rl.runs.limits import GIB, Finding, check_limits, check_storage, gib

if TYPE_CHECKING:
    from topology import MachineSpec

__all__ = ["Finding", "check_installation", "check_limits", "check_machine", "check_storage"]

#: Oldest versions that work; the same as in pyproject.toml.
NEEDED = {"mujoco": (4, 0), "torch": (2, 6), "gymnasium": (1, 0), "numpy": (2, 0)}
#: A run of one collector and one learner with the shipped recipes stays below this.
COMFORTABLE_MEMORY = 3 * GIB


def check_installation() -> Iterator[Finding]:
    """Python, operating system, and the versions of what training runs on."""
    if not sys.platform.startswith("linux"):
        yield Finding("error", f"operating system {sys.platform}", "training needs Linux (memfd, eventfd)")
    python = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("ok", f"Python {python}")
    for package, oldest in NEEDED.items():
        yield _check_version(package, oldest)


def check_machine(machine: MachineSpec) -> Iterator[Finding]:
    """CPUs, memory, NUMA and GPUs, as the topology floor sees them."""
    cpus = len(machine.allowed_cpus)
    if machine.cpu_quota is not None and machine.cpu_quota < cpus:
        yield Finding(
            "warning",
            f"CPUs: {cpus}, but the cgroup grants {machine.cpu_quota:g} CPUs' worth of time",
            "workers are placed on fewer CPUs; raise the quota to use all",
        )
    elif cpus < 2:
        yield Finding(
            "warning", f"CPUs: {cpus}", "collector and learner take turns; give the process two CPUs"
        )
    else:
        yield Finding("ok", f"CPUs: {cpus} on {len(machine.usable_nodes)} NUMA node(s)")
    yield _check_memory(machine)
    yield from _check_gpus(machine)
    for note in machine.notes:
        yield Finding("warning", note)


def _check_version(package: str, oldest: tuple[int, ...]) -> Finding:
    needed = ".".join(str(part) for part in oldest)
    try:
        found = version(package)
    except PackageNotFoundError:
        return Finding("error", f"{package} is not installed", f'pip install "{package}>={needed}"')
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[: len(oldest)])
    if numbers < oldest:
        return Finding("error", f"{package} {found}", f'pip install "{package}>={needed}"')
    return Finding("ok", f"{package} {found}")


def _check_memory(machine: MachineSpec) -> Finding:
    free = machine.memory_free
    if free is None:
        return Finding("warning", "memory: unknown", "a run's needs are not checked before it starts")
    limited = machine.memory_limit is not None and free < (machine.memory_available or free + 1)
    where = " left under the cgroup's limit" if limited else " available"
    if free < COMFORTABLE_MEMORY:
        return Finding(
            "warning",
            f"memory: {gib(free)}{where}",
            "close other programs or raise the limit; `motrix-rl plan` shows what a run needs, and a smaller"
            " algo.agent.buffer_size needs less",
        )
    return Finding("ok", f"memory: {gib(free)}{where}")


def _check_gpus(machine: MachineSpec) -> Iterator[Finding]:
    try:
        torch_build = version("torch")
    except PackageNotFoundError:
        torch_build = ""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    for gpu in machine.gpus:
        memory = "" if gpu.memory_bytes is None else f", {gib(gpu.memory_bytes)}"
        yield Finding("ok", f"GPU {gpu.device}: {gpu.name}{memory}")
        if not gpu.numa_nodes and len(machine.usable_nodes) > 1:
            yield Finding(
                "warning", f"GPU {gpu.device}: NUMA node unknown", "its workers are not pinned to a node"
            )
        if gpu.mig:
            yield Finding(
                "warning",
                f"GPU {gpu.device}: a MIG slice",
                "CUDA IPC does not work there; rings use host memory",
            )
    if machine.gpus:
        if "+cpu" in torch_build:
            yield Finding(
                "warning", f"torch {torch_build} cannot use the GPUs", "install a CUDA build of torch"
            )
        if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
            yield Finding(
                "warning",
                "PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, which CUDA IPC may not support",
                "unset it, or set transition_ipc=off and weight_ipc=off",
            )
        return
    if hidden is not None and ctypes.util.find_library("cuda"):
        yield Finding(
            "warning",
            f"GPUs: none visible (CUDA_VISIBLE_DEVICES={hidden!r})",
            "unset it to train on the GPUs",
        )
    elif ctypes.util.find_library("cuda"):
        yield Finding("warning", "GPUs: a driver is installed, but no GPU is seen", "check `nvidia-smi`")
    else:
        yield Finding("ok", "GPUs: none; learners run on the CPU")
