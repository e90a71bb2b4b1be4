"""Waking and waiting: eventfds, the stop signal, and the one wait every worker uses.

Waiting is `poll(2)`, so it costs no CPU, and it takes no lock: a process killed while it waits or posts
leaves nothing behind that another could wait for.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Sequence
from typing import Protocol

from transport.descriptors import Descriptor
from transport.errors import TransportError


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class EventFd:
    """A kernel counter one process posts to and one process takes from.

    As a semaphore each `take` gives one token; otherwise it gives all of them at once. The kernel's lock
    inside both orders memory: what the poster wrote before `post`, the taker sees after `take`, on every CPU.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, *, semaphore: bool = False, label: str = "eventfd") -> None:
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK | (os.EFD_SEMAPHORE if semaphore else 0)
        self._descriptor = Descriptor.open(lambda: os.eventfd(0, flags), label)

    def post(self, count: int = 1) -> None:
        """Add ``count`` tokens; never waits."""
        if count > 0:
            os.eventfd_write(self._descriptor.fileno(), count)

    def take(self) -> int:
        """Take what one read gives (1 from a semaphore, else all), or 0 if there is nothing; never waits."""
        try:
            return os.eventfd_read(self._descriptor.fileno())
        except BlockingIOError:
            return 0

    def drain(self) -> int:
        """Take everything; returns how many tokens there were."""
        total = 0
        while taken := self.take():
            total += taken
        return total

    def fileno(self) -> int:
        return self._descriptor.fileno()

    def close(self) -> None:
        self._descriptor.close()

    def __getstate__(self) -> tuple[None, dict[str, Descriptor]]:
        return None, {"_descriptor": self._descriptor}


class Signal:
    """A level: raised once by its one setter, seen by every process that polls it, from then on.

    Nobody ever reads the eventfd, so any number of waiters see the level, late ones too.
    """

    __slots__ = ("_event", "_poller")

    def __init__(self, label: str = "signal") -> None:
        self._event = EventFd(label=label)
        self._poller: select.poll | None = None

    def set(self) -> None:
        """Raise the level; raising it again changes nothing."""
        self._event.post()

    def is_set(self) -> bool:
        """Whether it is raised; one system call, no wait."""
        if self._poller is None:
            self._poller = select.poll()
            self._poller.register(self._event.fileno(), select.POLLIN)
        return bool(self._poller.poll(0))

    def fileno(self) -> int:
        return self._event.fileno()

    def close(self) -> None:
        self._event.close()
        self._poller = None

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, {"_event": self._event, "_poller": None}


class StopSignal(Signal):
    """The run's stop level. The parent raises it; every wait of every worker ends then."""

    __slots__ = ()

    def __init__(self, label: str = "stop signal") -> None:
        super().__init__(label)


def wait_any(
    fds: Sequence[int | HasFileno], stop: Signal | None = None, timeout_s: float | None = None
) -> list[int]:
    """Wait until a descriptor is readable (or hung up), ``stop`` is raised, or the time is over.

    Args:
        fds: descriptors, or objects with ``fileno()``.
        stop: ends the wait when raised.
        timeout_s: seconds; ``None`` waits for good, 0 only looks.

    Returns:
        Descriptors that are ready, without that of ``stop``; empty when stop or time ended the wait.

    Raises:
        TransportError: a descriptor is closed.
    """
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    stop_fd = -1
    if stop is not None:
        stop_fd = stop.fileno()
        poller.register(stop_fd, select.POLLIN)
    # Python restarts poll(2) after a signal with the time that is left.
    events = poller.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000.0))
    for fd, mask in events:
        if mask & select.POLLNVAL:
            raise TransportError(f"cannot wait on descriptor {fd}: it is closed")
    return [fd for fd, _ in events if fd != stop_fd]


class Deadline:
    """Time left of a limit; ``None`` is no limit."""

    __slots__ = ("_end",)

    def __init__(self, timeout_s: float | None) -> None:
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end
