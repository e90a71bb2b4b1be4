"""Ctrl-C and the like, as the supervisor hears them: counted, and never in the middle of something."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP; the wake-up descriptor ends the supervisor's wait at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def _note(self, signum: int, _frame: Any) -> None:
        self.count += 1
        self.name = signal.Signals(signum).name

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handlers of the parent while the run lasts; what was there before comes back afterwards."""
        before = {signum: signal.signal(signum, self._note) for signum in self.SIGNALS}
        wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            os.close(self._read)
            os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def clear_wakeup(self) -> None:
        """Empties the wake-up pipe."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return
