"""What `doctor` looks at. Loads neither torch nor mujoco: versions are read from the installed metadata."""

from __future__ import annotations

import ctypes.util
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from topology import MachineSpec

GIB = 1 << 30
#: Oldest versions that work; the same as in pyproject.toml.
NEEDED = {"mujoco": (4, 0), "torch": (2, 6), "gymnasium": (1, 0), "numpy": (2, 0)}
#: A run of one collector and one learner with the shipped recipes stays below this.
COMFORTABLE_MEMORY = 3 * GIB
COMFORTABLE_DISK = 2 * GIB
#: Descriptors that a run of a few workers needs, with room to spare.
COMFORTABLE_FILES = 256
COMFORTABLE_PROCESSES = 256


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warning", "error"]
    what: str
    advice: str = ""


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


def check_limits() -> Iterator[Finding]:
    """Open files and processes that this user may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < COMFORTABLE_FILES:
        higher = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield Finding(
            "warning", f"open files: at most {soft}", f"`ulimit -n {max(1024, soft)}` (allowed: {higher})"
        )
    else:
        yield Finding("ok", f"open files: at most {_limit(soft)}")
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < COMFORTABLE_PROCESSES:
        yield Finding(
            "warning", f"processes and threads: at most {soft}", "`ulimit -u 1024`, or ask the administrator"
        )
    else:
        yield Finding("ok", f"processes and threads: at most {_limit(soft)}")


def check_storage(runs_root: str) -> Iterator[Finding]:
    """Whether runs can be written, and whether there is room for them."""
    root = Path(runs_root).expanduser().absolute()
    existing = next((path for path in (root, *root.parents) if path.exists()), Path("/"))
    if not existing.is_dir():
        yield Finding("error", f"runs: {existing} is no directory", "choose another place with runs_root=DIR")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            "error", f"runs: {existing} cannot be written", "choose another place with runs_root=DIR"
        )
        return
    free = shutil.disk_usage(existing).free
    if free < COMFORTABLE_DISK:
        yield Finding(
            "warning",
            f"disk: {_gib(free)} free for {root}",
            "free some, choose another place with runs_root=DIR, or leave checkpoint.save_replay=false",
        )
    else:
        yield Finding("ok", f"disk: {_gib(free)} free for {root}")


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
            f"memory: {_gib(free)}{where}",
            "close other programs or raise the limit; `motrix-rl plan` shows what a run needs, and a smaller"
            " algo.agent.buffer_size needs less",
        )
    return Finding("ok", f"memory: {_gib(free)}{where}")


def _check_gpus(machine: MachineSpec) -> Iterator[Finding]:
    try:
        torch_build = version("torch")
    except PackageNotFoundError:
        torch_build = ""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    for gpu in machine.gpus:
        memory = "" if gpu.memory_bytes is None else f", {_gib(gpu.memory_bytes)}"
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


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
