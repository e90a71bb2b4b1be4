"""Ownership of one file descriptor, and its way into a spawned process.

Everything this floor shares between processes is a descriptor (memory, eventfd, pipe end). Each is
close-on-exec, so a process holds exactly those it was handed as arguments of its start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from transport.errors import TransportError


class Descriptor:
    """Owns one file descriptor; closes it once, at the latest when collected.

    Lives in one process. Pickling it is possible only while a process is being spawned; the new process gets
    a descriptor of its own to the same open file.
    """

    __slots__ = ("_fd", "_label")

    def __init__(self, fd: int, label: str) -> None:
        self._fd = fd
        self._label = label

    @classmethod
    def open(cls, opener: Callable[[], int], label: str) -> Descriptor:
        """Open a descriptor; the process's limit on open files becomes one clear error.

        Raises:
            TransportError: the limit on open files is reached, or memory for the object is short.
        """
        try:
            return cls(opener(), label)
        except OSError as error:
            raise descriptor_error(error, label) from error

    def fileno(self) -> int:
        """The descriptor's number in this process."""
        if self._fd < 0:
            raise TransportError(f"{self._label} is closed in this process")
        return self._fd

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def close(self) -> None:
        """Close it; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # A constructor that raised leaves no slot behind.
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def __reduce__(self) -> tuple[Callable[..., Descriptor], tuple[Any, str]]:
        if get_spawning_popen() is None:
            raise TransportError(f"{self._label} can be passed to a process only as an argument of its start")
        return _rebuild, (reduction.DupFd(self.fileno()), self._label)


def _rebuild(handle: Any, label: str) -> Descriptor:
    fd: int = handle.detach()
    # multiprocessing makes passed descriptors inheritable in the child; a grandchild must not get them.
    os.set_inheritable(fd, False)
    return Descriptor(fd, label)


def descriptor_error(error: OSError, label: str) -> TransportError:
    """Translate the system's refusal to open something into an error that names the way out."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TransportError(
            f"cannot open {label}: the limit on open files is reached; raise it (`ulimit -n 4096`)"
        )
    return TransportError(f"cannot open {label}: {error.strerror}")
