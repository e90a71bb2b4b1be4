"""The terminal: a panel where there is one, plain lines where there is none."""

from motrix_rl.console.base import Console, Mode, make_console
from motrix_rl.console.render import render_boot, render_status, summary_line
from motrix_rl.console.status import BootStatus, RunStatus, WorkerStatus

__all__ = [
    "BootStatus",
    "Console",
    "Mode",
    "RunStatus",
    "WorkerStatus",
    "make_console",
    "render_boot",
    "render_status",
    "summary_line",
]
