"""Binding: what a worker inherits before its first thread exists.

The parent wraps ``Process.start()`` in `bound_spawn`. Affinity, memory policy and environment pass to the
child when it is created, so that every thread of it, those of native pools included, starts on its CPUs. The
caller's own settings are back when the block ends. From the main thread only: the environment belongs to the
whole process.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MPOL_DEFAULT = 0
MPOL_PREFERRED = 1

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236, "ppc64le": 260}
_MAX_NODES = 1024

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)


@dataclass(frozen=True)
class Bound:
    """What a `bound_spawn` block could do; `notes` says what the system did not permit."""

    cpus: tuple[int, ...]
    numa_node: int | None
    notes: tuple[str, ...]


def thread_environment(threads: int) -> dict[str, str]:
    """The environment that holds the native pools to `threads`."""
    variables = {name: str(threads) for name in THREAD_VARIABLES}
    # Pools that differ in size would otherwise be shrunk or grown behind our back.
    variables["OMP_DYNAMIC"] = "FALSE"
    variables["MKL_DYNAMIC"] = "FALSE"
    # A thread that spins after its work burns a CPU that another worker may share.
    variables["OMP_WAIT_POLICY"] = "PASSIVE"
    variables["GOMP_SPINCOUNT"] = "0"
    variables["KMP_BLOCKTIME"] = "0"
    # The mask below is the binding; a pool's own would place every worker's first thread on the same CPU.
    variables["OMP_PROC_BIND"] = "FALSE"
    return variables


@contextmanager
def bound_spawn(
    cpus: Iterable[int],
    numa_node: int | None = None,
    threads: int = 1,
    *,
    extra_environment: Mapping[str, str] | None = None,
) -> Generator[Bound]:
    """Binds what is spawned within the block, and restores the caller's own binding after it.

    Args:
        cpus: CPUs the child may run on; empty leaves the affinity as it is.
        numa_node: node its memory should come from (preferred, not forced); None leaves the policy as it is.
        threads: size of its native thread pools.
        extra_environment: further variables for the child.

    Raises:
        OSError: the CPUs cannot be had (taken from this process since the layout was computed).
        RuntimeError: called from another thread than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "bound_spawn changes the whole process's environment: call it from the main thread only"
        )
    wanted = tuple(sorted(set(cpus)))
    environment = {**thread_environment(threads), **(extra_environment or {})}
    saved_environment = {name: os.environ.get(name) for name in environment}
    saved_cpus = os.sched_getaffinity(0)
    notes: list[str] = []
    policy = _read_policy() if numa_node is not None else None
    try:
        if wanted:
            os.sched_setaffinity(0, wanted)
        if numa_node is not None:
            notes.extend(_prefer(numa_node))
        os.environ.update(environment)
        yield Bound(wanted, numa_node, tuple(notes))
    finally:
        for name, value in saved_environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if numa_node is not None:
            _write_policy(*(policy or (MPOL_DEFAULT, 0)))
        os.sched_setaffinity(0, saved_cpus)


def _prefer(node: int) -> list[str]:
    error = _write_policy(MPOL_PREFERRED, 1 << node)
    if error is None:
        return []
    note = f"memory policy for NUMA node {node} not set ({error}); memory goes where it is first touched"
    logger.debug(note)
    return [note]


_WORD = ctypes.sizeof(ctypes.c_ulong) * 8


def _mask(bits: int) -> ctypes.Array[ctypes.c_ulong]:
    words = _MAX_NODES // _WORD
    return (ctypes.c_ulong * words)(*((bits >> (_WORD * i)) & ((1 << _WORD) - 1) for i in range(words)))


def _syscall(table: Mapping[str, int], *arguments: object) -> str | None:
    """Issues a system call; returns None, or why it failed."""
    number = table.get(platform.machine())
    if number is None:
        return f"no system call number known for {platform.machine()}"
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *arguments) == 0:
        return None
    return os.strerror(ctypes.get_errno())


def _write_policy(mode: int, nodes: int) -> str | None:
    """Sets this thread's memory policy; returns None, or why it was refused (seccomp, no such node)."""
    if not nodes:
        return _syscall(_SET_MEMPOLICY, ctypes.c_int(mode), None, ctypes.c_ulong(0))
    # The kernel reads one bit less than maxnode says.
    return _syscall(_SET_MEMPOLICY, ctypes.c_int(mode), _mask(nodes), ctypes.c_ulong(_MAX_NODES + 1))


def _read_policy() -> tuple[int, int] | None:
    """This thread's memory policy and its nodes, or None where it cannot be read."""
    mode = ctypes.c_int(0)
    mask = _mask(0)
    error = _syscall(
        _GET_MEMPOLICY, ctypes.byref(mode), mask, ctypes.c_ulong(_MAX_NODES + 1), None, ctypes.c_ulong(0)
    )
    if error is not None:
        return None
    return mode.value, sum(word << (_WORD * i) for i, word in enumerate(mask))
