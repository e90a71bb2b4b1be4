"""One process at a time in a run directory: a lock that the kernel takes back, however its holder ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import weakref
from pathlib import Path

from motrix_rl.errors import UsageError
from motrix_rl.runs import processes
from motrix_rl.runs.atomic import is_at

log = logging.getLogger(__name__)

#: Tries to lock a file that is replaced or deleted meanwhile, before it is taken as it is.
TRIES = 10


class RunLock:
    """An advisory lock (`flock`) on a file, held until `release`, or the end of this process.

    No child inherits the descriptor, so that workers that are still leaving after a kill of their parent do not
    hold what it held. Where files cannot be locked (some network file systems), it holds nothing and refuses
    nobody; what `run.json` says is then all there is.

    Args:
        path: The file; made where it is missing. It says who holds it.

    Raises:
        UsageError: Another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _locked(path)
        for _ in range(TRIES):
            if self._fd < 0 or is_at(self._fd, path):
                break
            os.close(self._fd)  # whoever held it has removed it with what it locked
            self._fd = _locked(path)
        if self._fd >= 0:
            self._close = weakref.finalize(self, os.close, self._fd)
            _sign(self._fd)

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is locked is still the one at its path."""
        return self._fd < 0 or is_at(self._fd, self._path)

    def release(self, *, remove: bool = False) -> None:
        """Lets others have it; `remove` takes the file away, too. May be called more than once."""
        if self._fd < 0:
            return
        if remove and is_at(self._fd, self._path):
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._fd = -1
        self._close()


def _locked(path: Path) -> int:
    """The file, locked; -1 where that cannot be had here.

    Raises:
        UsageError: Another process holds it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:  # no place for this file: those that matter will say so better
        log.debug("%s cannot be opened: %s", path, error)
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(fd)
        os.close(fd)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            log.debug("%s cannot be locked: %s", path, error)
            return -1
        raise UsageError(still_running(path.parent, holder)) from None
    return fd


def still_running(path: Path, holder: tuple[str, int] | None) -> str:
    """The line for who wants to start in the directory of a run that goes on.

    Args:
        path: The run directory.
        holder: Host and process, where they are known.
    """
    who = "" if holder is None else f" (process {holder[1]} on {holder[0]})"
    return f"{path} is still running{who}; wait for its end, or start another run in a directory of its own"


def _sign(fd: int) -> None:
    host, pid, ticks = processes.own_identity()
    with contextlib.suppress(OSError):  # a full disk: then the holder has no name
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{pid} {ticks} {host}\n".encode(), 0)


def _holder(fd: int) -> tuple[str, int] | None:
    """Who holds the file, as far as it says so and that is not the holder before."""
    try:
        pid, ticks, host = os.pread(fd, 1024, 0).decode().split()
        alive = processes.is_alive(host, int(pid), int(ticks) or None)
    except (OSError, ValueError):
        return None
    return None if alive is False else (host, int(pid))
