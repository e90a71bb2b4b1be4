"""The panel: drawn over itself on a terminal, by Rich, on a descriptor of its own."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
from collections.abc import Callable

import rich.console
from rich.control import Control
from rich.live import Live
from rich.text import Text

from motrix_rl.console.base import terminal_encoding, terminal_glyphs
from motrix_rl.console.layout import clean, fit
from motrix_rl.console.render import render_boot, render_status
from motrix_rl.console.status import BootStatus, RunStatus

SHOW_CURSOR = b"\x1b[?25h"
KEPT_NOTES = 200

_Render = Callable[[int, int], list[Text]]


class PanelConsole:
    """A panel in the lower part of a terminal; notes above it stay and scroll.

    It writes to a duplicate of the terminal's descriptor: what anything prints to fd 1 or 2 of this process
    while those are redirected cannot tear it, and no worker has the terminal at all. Nothing is drawn by a
    thread; a frame is left out while the terminal takes nothing (Ctrl-S), so that nobody waits for it.

    Args:
        stream_fd: The terminal; duplicated.
    """

    def __init__(self, stream_fd: int = 1) -> None:
        self._fd = os.dup(stream_fd)
        self._glyphs = terminal_glyphs()
        self._file = open(  # noqa: SIM115 - closed by close()
            self._fd, "w", encoding=terminal_encoding(), errors="replace", closefd=False, newline=""
        )
        self._console = rich.console.Console(
            file=self._file, force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=False
        )
        self._live: Live | None = None
        self._size = (0, 0)
        self._render: _Render | None = None
        self._notes: list[str] = []
        self._unshown: list[str] = []
        self._closed = False
        atexit.register(self.close)

    def boot(self, view: BootStatus) -> None:
        """Draws a run that is starting."""
        self._show(lambda width, height: render_boot(view, width, height, self._glyphs))

    def status(self, view: RunStatus) -> None:
        """Draws a run that is going on."""
        self._show(lambda width, height: render_status(view, width, height, self._glyphs))

    def note(self, line: str) -> None:
        """Prints a line above the panel."""
        self._notes = [*self._notes, line][-KEPT_NOTES:]
        self._unshown.append(line)
        if self._render is not None:
            self._show(self._render)
        else:
            self._draw(lambda: self._print_notes(self._unshown))

    def close(self, final_view: RunStatus | BootStatus | None = None) -> None:
        """Draws the last frame and gives the terminal back, the cursor below the frame and visible."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if isinstance(final_view, RunStatus):
            self._render = lambda width, height: render_status(final_view, width, height, self._glyphs)
        elif final_view is not None:
            self._render = lambda width, height: render_boot(final_view, width, height, self._glyphs)
        try:
            if self._render is not None:
                self._draw(self._draw_frame)
        finally:
            self._restore()

    def _restore(self) -> None:
        live, self._live = self._live, None
        with contextlib.suppress(OSError, ValueError):
            if live is not None:
                live.stop()
            self._file.flush()
        with contextlib.suppress(OSError):
            os.write(self._fd, SHOW_CURSOR)
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _show(self, render: _Render) -> None:
        self._render = render
        if not self._closed:
            self._draw(self._draw_frame)

    def _draw(self, action: Callable[[], None]) -> None:
        """Does something to the terminal if it has room for it; one that is gone is left alone for good."""
        try:
            # A terminal stopped by Ctrl-S, or whose reader is stuck, has no room.
            if select.select([], [self._fd], [], 0)[1]:
                action()
        except OSError:
            self._closed = True
            self._restore()

    def _draw_frame(self) -> None:
        assert self._render is not None
        size = self._terminal_size()
        if self._live is not None and size != self._size:
            self._begin_again()
        self._size = size
        width, height = size
        # One line less than the terminal has: the line below the panel stays free for the cursor.
        lines = self._render(width, max(height - 1, 1))
        frame = Text("\n").join(lines)
        frame.no_wrap, frame.overflow, frame.end = True, "crop", "\n"
        if self._live is None:
            self._print_notes(self._unshown)
            self._live = Live(
                frame,
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start(refresh=True)
            return
        if self._unshown:
            self._print_notes(self._unshown)
        self._live.update(frame, refresh=True)

    def _begin_again(self) -> None:
        """After a resize the terminal has moved our lines about: wipe the screen and show the notes again."""
        live, self._live = self._live, None
        assert live is not None
        with self._console:  # one write
            live.stop()
            self._console.control(Control.home(), Control.clear(), Control.home())
            self._unshown = self._notes[-max(self._terminal_size()[1] // 4, 1) :]

    def _print_notes(self, lines: list[str]) -> None:
        width = self._terminal_size()[0]
        for line in lines:
            text = Text(fit(clean(line, self._glyphs), width, self._glyphs), no_wrap=True, overflow="crop")
            self._console.print(text)
        self._unshown = []

    def _terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._fd)
        except OSError:
            return self._size if self._size[0] else (80, 24)
        # A terminal that does not know its size (a serial line, some pty) says 0 x 0.
        return (size.columns or 80, size.lines or 24)
