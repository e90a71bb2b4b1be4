"""Reading workers' logs: the end of one, all of them merged by time, or as they grow."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from motrix_rl.errors import UsageError, did_you_mean
from motrix_rl.logs.lines import parse
from motrix_rl.runs import RunDirectory

POLL_S = 0.2
_BLOCK = 1 << 13


def tail(path: str | os.PathLike[str], lines: int) -> list[str]:
    """The last lines of a file, oldest first, without reading the rest of it; [] where there is no file.

    Args:
        path: The file.
        lines: How many at most.
    """
    if lines < 1:
        return []
    try:
        with open(path, "rb") as file:
            at = file.seek(0, os.SEEK_END)
            data = b""
            while at > 0 and data.count(b"\n") <= lines:
                step = min(_BLOCK, at)
                at = file.seek(at - step)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return [_text(line) for line in data.split(b"\n") if line][-lines:]


def worker_names(run_dir: str | os.PathLike[str]) -> list[str]:
    """Workers that have a log in a run directory."""
    return sorted(path.stem for path in RunDirectory(run_dir).logs.glob("*.log"))


def log_path(run_dir: str | os.PathLike[str], worker: str) -> Path:
    """Log file of a worker of a run.

    Raises:
        UsageError: No such worker, with the nearest name.
    """
    names = worker_names(run_dir)
    if worker not in names:
        raise UsageError(
            f"the run has no worker '{worker}'{did_you_mean(worker, names) or '; it has no logs yet'}"
        )
    return RunDirectory(run_dir).log_path(worker)


def merge_logs(run_dir: str | os.PathLike[str]) -> Iterator[str]:
    """All lines of all workers' logs in the order of their times."""
    paths = sorted(RunDirectory(run_dir).logs.glob("*.log"))
    yield from (
        line for _, line in heapq.merge(*(_timed(_lines(path)) for path in paths), key=lambda item: item[0])
    )


def read_log(run_dir: str | os.PathLike[str], worker: str | None) -> Iterator[str]:
    """Lines of one worker's log, or of all merged by time.

    Raises:
        UsageError: No such worker.
    """
    return merge_logs(run_dir) if worker is None else _lines(log_path(run_dir, worker))


def follow(run_dir: str | os.PathLike[str], worker: str | None = None, *, lines: int | None = None,
           stop: Callable[[], bool] | None = None, poll_s: float = POLL_S) -> Iterator[str]:  # fmt: skip
    """Lines as `read_log` gives them, then new ones as they come; ends with the run, or cleanly on Ctrl-C.

    Args:
        run_dir: The run.
        worker: One worker, or None for all.
        lines: Begin with this many of the lines that are there; all when None.
        stop: Ends it when true; by default when the run is no longer running.
        poll_s: Seconds between looks.

    Raises:
        UsageError: No such worker.
    """
    run = RunDirectory(run_dir)
    only = None if worker is None else log_path(run_dir, worker)
    return _follow(run, only, lines, stop or (lambda: not run.record.is_running()), poll_s)


def _follow(run: RunDirectory, only: Path | None, first: int | None, stop: Callable[[], bool],
            poll_s: float) -> Iterator[str]:  # fmt: skip
    tails: dict[Path, _GrowingFile] = {}
    try:
        while True:
            # Asked before the read, so that what was written just before the end is still shown.
            ended = stop()
            for path in [only] if only else sorted(run.logs.glob("*.log")):
                tails.setdefault(path, _GrowingFile(path))
            fresh = [_timed(file.read()) for file in tails.values()]
            batch = [line for _, line in heapq.merge(*fresh, key=lambda item: item[0])]
            if first is not None:
                batch, first = (batch[-first:] if first else []), None
            yield from batch
            if ended:
                return
            time.sleep(poll_s)
    except KeyboardInterrupt:
        return


class _GrowingFile:
    """New whole lines of a file that others append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""

    def read(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self._at:
                    self._at, self._rest = 0, b""  # cut or replaced: begin again
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [_text(line) for line in whole]


def _timed(lines: Iterator[str] | list[str]) -> Iterator[tuple[str, str]]:
    """Lines with their times; a line that has none goes with the one before it."""
    newest = ""
    for line in lines:
        parsed = parse(line)
        newest = parsed.time if parsed else newest
        yield newest, line


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="backslashreplace")
