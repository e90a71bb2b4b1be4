"""What every console offers, and the choice between them."""

from __future__ import annotations

import locale
import os
import sys
from typing import Literal, Protocol

from motrix_rl.console.layout import ASCII, UNICODE, Glyphs
from motrix_rl.console.status import BootStatus, RunStatus

Mode = Literal["auto", "panel", "plain"]


class Console(Protocol):
    """A place that shows how a run goes.

    All calls come from the supervisor's main thread. None raises for the terminal's sake: one that is gone is
    simply no longer written to.
    """

    def boot(self, view: BootStatus) -> None:
        """Shows a run that is starting; cheap enough to be called several times a second."""
        ...

    def status(self, view: RunStatus) -> None:
        """Shows a run that is going on; cheap enough to be called several times a second."""
        ...

    def note(self, line: str) -> None:
        """Shows a line that stays."""
        ...

    def close(self, final_view: RunStatus | BootStatus | None = None) -> None:
        """Shows the last state and leaves the terminal clean. May be called more than once."""
        ...


def make_console(mode: Mode = "auto", *, stream_fd: int = 1, interval_s: float = 10.0) -> Console:
    """Makes the console that fits.

    Args:
        mode: `plain` for lines; `auto` and `panel` for the panel on a terminal that has a cursor, and lines
            elsewhere (a file, a pipe, `TERM=dumb`).
        stream_fd: Where to write; duplicated, so that it may be redirected later.
        interval_s: Least time between two lines of the plain console, seconds.
    """
    from motrix_rl.console.panel import PanelConsole
    from motrix_rl.console.plain import PlainConsole

    if mode != "plain" and has_cursor(stream_fd):
        return PanelConsole(stream_fd)
    return PlainConsole(stream_fd, interval_s=interval_s)


def has_cursor(fd: int) -> bool:
    """Whether a descriptor is a terminal on which a panel can be drawn over itself."""
    return os.isatty(fd) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def terminal_encoding() -> str:
    """Encoding of text for the terminal, from the locale."""
    return locale.getencoding() if not sys.flags.utf8_mode else "utf-8"


def terminal_glyphs() -> Glyphs:
    """Drawing characters that the terminal's encoding has."""
    try:
        (UNICODE.corners + UNICODE.full + UNICODE.ellipsis).encode(terminal_encoding())
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
