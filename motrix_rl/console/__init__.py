"""The terminal: a panel where there is one, plain lines where there is none."""

from motrix_rl.console.status import BootStatus, RunStatus, WorkerStatus

__all__ = ["BootStatus", "RunStatus", "WorkerStatus"]
