"""The whole story of a worker's fault, where the last line of the terminal points to."""

from __future__ import annotations

import logging

from motrix_rl.logs import tail
from motrix_rl.runs import RunDirectory
from workers.fleet import Worker

log = logging.getLogger(__name__)


def write_error_file(directory: RunDirectory, worker: Worker, reason: str) -> None:
    """Appends to a worker's error file what is known of its fault, unless it wrote its own traceback.

    Args:
        directory: the run directory.
        worker: the one that failed.
        reason: why the run ends, for a worker that still lives.
    """
    path = directory.error_path(worker.name)
    if path.exists() and worker.error is not None and worker.error.get("kind") == "error":
        return
    lines = tail(directory.log_path(worker.name), 40)
    told = "" if worker.error is None else str(worker.error.get("traceback", ""))
    head = reason if worker.alive else f"{worker.name} {worker.cause()}"
    try:
        directory.write_error(worker.name, f"{head}\n{told}\nlast lines of its log:\n" + "\n".join(lines))
    except OSError as fault:
        log.error("cannot write %s: %s", path, fault)
