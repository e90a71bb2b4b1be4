"""What a worker process does about its parent, and what a parent does about files torch left behind."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from transport.errors import TransportError

_PR_SET_PDEATHSIG = 1
_TORCH_FILE = re.compile(r"torch_(\d+)_")


def set_parent_death_signal(parent_pid: int, sig: int = signal.SIGKILL) -> None:
    """Have the kernel send ``sig`` to this process when its parent dies.

    The kernel means the parent's thread that started this process, so a parent starts workers from its main
    thread only.

    Args:
        parent_pid: the parent as the parent knows itself.
        sig: signal to be sent.

    Raises:
        TransportError: the parent is gone already (the signal would never come), or the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise TransportError(
            f"cannot ask for a signal at the parent's death: {os.strerror(ctypes.get_errno())}"
        )
    if os.getppid() != parent_pid:
        raise TransportError(f"the parent (process {parent_pid}) ended before this worker had started")


def process_exists(pid: int) -> bool:
    """Whether a process of this id exists, a zombie included."""
    return Path(f"/proc/{pid}").exists()


def sweep_torch_shm(pids: Iterable[int], directory: Path = Path("/dev/shm")) -> list[Path]:
    """Remove the counter files that torch's CUDA IPC keeps per process and a killed process leaves behind.

    Args:
        pids: workers of ours that were reaped, or that a record of an earlier run names.
        directory: where torch keeps them.

    Returns:
        The files removed: those of processes that are dead, and of this user.
    """
    wanted = frozenset(pids)
    removed: list[Path] = []
    for path in sorted(directory.glob("torch_*")):
        match = _TORCH_FILE.match(path.name)
        if match is None:
            continue
        pid = int(match.group(1))
        if pid not in wanted or process_exists(pid):
            continue
        try:
            if path.stat().st_uid != os.getuid():
                continue
            path.unlink()
        except FileNotFoundError:
            continue
        removed.append(path)
    return removed
