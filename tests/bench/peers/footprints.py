"""What a program takes while it runs, and what it leaves: memory, and names in `/dev/shm`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.running import shm_inodes

_SHARED = Path("/dev/shm")
#: How `multiprocessing` and torch begin the names that they give to semaphores and blocks of memory.
_PREFIXES = ("sem.mp-", "psm_", "torch_")


def pss_mib(pids: Iterable[int]) -> float:
    """Memory of processes (MiB), a page that several of them share divided among these.

    Resident sizes would count such a page once for each process.
    """
    total_kib = 0
    for pid in pids:
        found = re.search(r"^Pss:\s+(\d+) kB$", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
        total_kib += int(found.group(1)) if found else 0  # it has ended meanwhile
    return total_kib / 1024


class SharedNames:
    """Names in `/dev/shm` that the processes of a program use, to be removed when it could not do so itself."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def see(self, pids: Iterable[int]) -> None:
        """Notes the names that these processes have mapped."""
        for pid in pids:
            self._seen |= mapped_names(pid)

    def remove(self) -> list[str]:
        """Removes those noted that are still there and that no living process has mapped; returns them."""
        left = {name for name in self._seen if (_SHARED / name).exists()}
        if left:
            for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
                left -= mapped_names(pid)
        for name in left:
            (_SHARED / name).unlink(missing_ok=True)
        return sorted(left)


def mapped_names(pid: int) -> set[str]:
    """Names in `/dev/shm` of what a process has mapped."""
    inodes = shm_inodes(pid)
    if not inodes:
        return set()
    with os.scandir(_SHARED) as entries:
        return {e.name for e in entries if e.name.startswith(_PREFIXES) and e.inode() in inodes}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
