"""Lines for a file, a pipe or a terminal without a cursor."""

from __future__ import annotations

import os
import select
import time

from motrix_rl.console import figures as fig
from motrix_rl.console.base import terminal_encoding, terminal_glyphs
from motrix_rl.console.layout import clean
from motrix_rl.console.render import summary_line
from motrix_rl.console.status import BootStatus, RunStatus


class PlainConsole:
    """One line an interval with the panel's figures; during the boot, one line for each change of a phase.

    Args:
        stream_fd: Where to write; duplicated.
        interval_s: Least time between two status lines, seconds.
    """

    def __init__(self, stream_fd: int = 1, *, interval_s: float = 10.0) -> None:
        self._fd = os.dup(stream_fd)
        self._interval = interval_s
        self._glyphs = terminal_glyphs()
        self._encoding = terminal_encoding()
        self._phases: dict[str, str] = {}
        self._last_at: float | None = None
        self._last_line = ""
        self._announced = False

    def boot(self, view: BootStatus) -> None:
        """Prints the run once, then each worker whose phase has changed."""
        if not self._announced:
            self._announced = True
            self._print(f"starting {view.title} in {view.run_dir}")
        for worker in view.workers:
            if self._phases.get(worker.name) != worker.phase:
                self._phases[worker.name] = worker.phase
                last = f": {worker.last_line}" if worker.last_line else ""
                self._print(f"[{fig.duration(view.elapsed_s)}] {worker.name} {worker.phase}{last}")

    def status(self, view: RunStatus) -> None:
        """Prints the figures when the interval has passed since the last line."""
        now = time.monotonic()
        if self._last_at is None or now - self._last_at >= self._interval:
            self._last_at = now
            self._print(self._remember(view))

    def note(self, line: str) -> None:
        """Prints a line."""
        self._print(line)

    def close(self, final_view: RunStatus | BootStatus | None = None) -> None:
        """Prints the last figures, if they were not the last line."""
        if self._fd < 0:
            return
        if isinstance(final_view, BootStatus):
            self.boot(final_view)
        elif final_view is not None:
            before = self._last_line
            line = self._remember(final_view)
            if line != before:
                self._print(line)
        os.close(self._fd)
        self._fd = -1

    def _remember(self, view: RunStatus) -> str:
        self._last_line = summary_line(view)
        return self._last_line

    def _print(self, line: str) -> None:
        if self._fd < 0:
            return
        text = clean(line, self._glyphs).encode(self._encoding, errors="replace")
        # A write of at most PIPE_BUF bytes to a pipe that has room neither waits nor is cut in two. A reader that
        # is stuck costs lines, never the run's time.
        data = text[: select.PIPE_BUF - 1] + b"\n"
        try:
            if select.select([], [self._fd], [], 0)[1]:
                os.write(self._fd, data)
        except OSError:
            # The reader has gone (`| head`): the run goes on without it.
            os.close(self._fd)
            self._fd = -1
