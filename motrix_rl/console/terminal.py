"""A terminal that is written to and never waited for."""

from __future__ import annotations

import contextlib
import io
import os
import select
import termios
import time

CLOSE_WAIT_S = 0.5


class TerminalWriter(io.TextIOBase):
    """Text file over a terminal of its own opening; what the terminal does not take now is kept.

    A terminal takes nothing after Ctrl-S, or while its reader is stuck (a remote connection that hangs).
    Whoever draws asks `idle` first and leaves a frame out rather than tear or delay one.

    Args:
        fd: The terminal. It is opened again by name where possible: not blocking is a property of the open
            file, which a duplicate would share with the user's shell.
        encoding: Encoding of the text.
    """

    def __init__(self, fd: int, encoding: str) -> None:
        self._fd = _open_again(fd)
        self._encoding = encoding
        self._pending = b""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the text; Rich chooses its characters by it."""
        return self._encoding

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Whether it is a terminal still."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Takes all of the text; `flush` sends it."""
        self._pending += text.encode(self._encoding, errors="replace")
        return len(text)

    def flush(self) -> None:
        """Sends what the terminal takes now.

        Raises:
            OSError: The terminal is gone.
        """
        while self._pending and select.select([], [self._fd], [], 0)[1]:
            try:
                self._pending = self._pending[os.write(self._fd, self._pending) :]
            except BlockingIOError:
                return

    def idle(self) -> bool:
        """Whether all was sent and there is room for more.

        Raises:
            OSError: The terminal is gone.
        """
        self.flush()
        return not self._pending and bool(select.select([], [self._fd], [], 0)[1])

    def resume(self) -> None:
        """Undoes a Ctrl-S, as a run that ends must not wait for somebody to press Ctrl-Q."""
        with contextlib.suppress(OSError, termios.error):
            # From the background this would stop us (SIGTTOU).
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                termios.tcflow(self._fd, termios.TCOON)

    def finish(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Sends the rest, as long as the terminal takes it within the time.

        Raises:
            OSError: The terminal is gone.
        """
        deadline = time.monotonic() + timeout_s
        while self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._fd], [], left)[1]:
                return
            self.flush()

    def close(self) -> None:
        """Closes it, with whatever was not sent."""
        self._pending = b""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        super().close()


def _open_again(fd: int) -> int:
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Not ours to open by name (after `su`, in a container): a duplicate, at the risk of waiting for it.
        return os.dup(fd)
