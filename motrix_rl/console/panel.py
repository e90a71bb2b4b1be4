"""The panel: drawn over itself on a terminal, by Rich, on a descriptor of its own."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable
from typing import IO, cast

import rich.console
from rich.console import ConsoleDimensions
from rich.control import Control
from rich.live import Live
from rich.text import Text

from motrix_rl.console import base
from motrix_rl.console.layout import clean, fit
from motrix_rl.console.render import render_boot, render_status
from motrix_rl.console.status import BootStatus, RunStatus
from motrix_rl.console.terminal import TerminalWriter

KEPT_NOTES = 200
SHOW_CURSOR = "\x1b[?25h"

_Render = Callable[[int, int], list[Text]]


class PanelConsole:
    """A panel in the lower part of a terminal; notes above it stay and scroll.

    It has a descriptor of its own: what anything prints to fd 1 or 2 of this process while those are
    redirected cannot tear it, and no worker has the terminal at all. Nothing is drawn by a thread; a frame is
    left out while the terminal takes nothing, so that nobody waits for it.

    Args:
        stream_fd: The terminal.
    """

    def __init__(self, stream_fd: int = 1) -> None:
        self._glyphs = base.terminal_glyphs()
        self._file = TerminalWriter(stream_fd, base.terminal_encoding())
        self._console = rich.console.Console(
            file=cast(IO[str], self._file),
            force_terminal=True,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
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
        self._show(self._renderer(view))

    def status(self, view: RunStatus) -> None:
        """Draws a run that is going on."""
        self._show(self._renderer(view))

    def note(self, line: str) -> None:
        """Prints a line above the panel."""
        self._notes = [*self._notes, line][-KEPT_NOTES:]
        self._unshown = [*self._unshown, line][-KEPT_NOTES:]
        if self._render is not None:
            self._show(self._render)
        else:
            self._draw(self._print_notes)

    def close(self, final_view: RunStatus | BootStatus | None = None) -> None:
        """Draws the last frame and gives the terminal back, the cursor below the frame and visible."""
        if self._closed:
            return
        if final_view is not None:
            self._render = self._renderer(final_view)
        try:
            with contextlib.suppress(OSError):
                self._file.resume()
                self._file.finish()
            if self._render is not None:
                self._draw(self._draw_frame)
        finally:
            self._restore()

    def _renderer(self, view: RunStatus | BootStatus) -> _Render:
        if isinstance(view, BootStatus):
            return lambda width, height: render_boot(view, width, height, self._glyphs)
        return lambda width, height: render_status(view, width, height, self._glyphs)

    def _restore(self) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        live, self._live = self._live, None
        with contextlib.suppress(OSError):
            if live is not None:
                live.stop()
            self._file.write(SHOW_CURSOR)
            self._file.finish()
        self._file.close()

    def _show(self, render: _Render) -> None:
        self._render = render
        self._draw(self._draw_frame)

    def _draw(self, action: Callable[[], None]) -> None:
        """Does something to the terminal if it has room for it; one that is gone is left alone for good."""
        if self._closed:
            return
        try:
            if self._file.idle():
                action()
        except OSError:
            self._restore()

    def _draw_frame(self) -> None:
        assert self._render is not None
        size = self._terminal_size()
        # Rich would ask fd 0, 1 and 2, which may be a worker's at this moment.
        self._console.size = ConsoleDimensions(*size)
        if self._live is not None and size != self._size:
            self._begin_again(size)
        self._size = size
        width, height = size
        # One line less than the terminal has: the line below the panel stays free for the cursor.
        frame = Text("\n").join(self._render(width, max(height - 1, 1)))
        frame.no_wrap, frame.overflow = True, "crop"
        if self._live is not None:
            self._print_notes()
            self._live.update(frame, refresh=True)
            return
        self._print_notes()
        self._live = Live(
            frame,
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def _begin_again(self, size: tuple[int, int]) -> None:
        """After a resize the terminal has moved our lines about: wipe the screen and show the notes again."""
        live, self._live = self._live, None
        assert live is not None
        with self._console:  # all of it in one write
            live.stop()
            self._console.control(Control.home(), Control.clear(), Control.home())
        self._unshown = self._notes[-max(size[1] // 4, 1) :]

    def _print_notes(self) -> None:
        """Prints notes in one go: each print draws the panel below it again."""
        if not self._unshown:
            return
        width = self._terminal_size()[0]
        lines = [Text(fit(clean(line, self._glyphs), width, self._glyphs)) for line in self._unshown]
        self._unshown = []
        self._console.print(Text("\n").join(lines), no_wrap=True, overflow="crop")

    def _terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._file.fileno())
        except OSError:
            return self._size if self._size[0] else (80, 24)
        # A terminal that does not know its size (a serial line, some pty) says 0 x 0.
        return (size.columns or 80, size.lines or 24)
