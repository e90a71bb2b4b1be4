"""Run directories: made, opened, found again. Imports no torch."""

from motrix_rl.runs.directory import RunDirectory, safe_name
from motrix_rl.runs.keeper import RunKeeper
from motrix_rl.runs.record import RunRecord
from motrix_rl.runs.resolve import ResolvedRun, iter_runs, newest_run, resolve_run, task_directory

__all__ = [
    "ResolvedRun",
    "RunDirectory",
    "RunKeeper",
    "RunRecord",
    "iter_runs",
    "newest_run",
    "resolve_run",
    "safe_name",
    "task_directory",
]
