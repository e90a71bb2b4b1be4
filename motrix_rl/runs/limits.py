"""What the system grants a run: open files, processes, a disk to write to. Loads nothing heavy."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GIB = 1 << 30
COMFORTABLE_DISK = 2 * GIB
#: Descriptors that a run of a few workers needs, with room to spare.
COMFORTABLE_FILES = 256
COMFORTABLE_PROCESSES = 256


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warning", "error"]
    what: str
    advice: str = ""


def check_limits(files: int = COMFORTABLE_FILES) -> Iterator[Finding]:
    """Open files and processes that this user may have.

    Args:
        files: descriptors that are needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < files:
        higher = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield Finding(
            "warning", f"open files: at most {soft}", f"`ulimit -n {max(1024, files)}` (allowed: {higher})"
        )
    else:
        yield Finding("ok", f"open files: at most {_limit(soft)}")
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < COMFORTABLE_PROCESSES:
        yield Finding(
            "warning", f"processes and threads: at most {soft}", "`ulimit -u 1024`, or ask the administrator"
        )
    else:
        yield Finding("ok", f"processes and threads: at most {_limit(soft)}")


def check_storage(runs_root: str) -> Iterator[Finding]:
    """Whether runs can be written, and whether there is room for them."""
    root = Path(runs_root).expanduser().absolute()
    existing = nearest_existing(root)
    if not existing.is_dir():
        yield Finding("error", f"runs: {existing} is no directory", "choose another place with runs_root=DIR")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            "error", f"runs: {existing} cannot be written", "choose another place with runs_root=DIR"
        )
        return
    free = shutil.disk_usage(existing).free
    if free < COMFORTABLE_DISK:
        yield Finding(
            "warning",
            f"disk: {gib(free)} free for {root}",
            "free some, choose another place with runs_root=DIR, or leave checkpoint.save_replay=false",
        )
    else:
        yield Finding("ok", f"disk: {gib(free)} free for {root}")


def nearest_existing(path: Path) -> Path:
    """The path itself or the nearest of its parents that is there, as far as this user may look."""
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def gib(count: int) -> str:
    """Bytes in GiB."""
    return f"{count / GIB:.1f} GiB"


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
