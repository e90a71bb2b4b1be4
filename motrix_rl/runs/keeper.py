"""The directory of a run that goes on, kept in place whoever takes it away."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from motrix_rl.errors import MotrixError
from motrix_rl.runs.atomic import replace_file
from motrix_rl.runs.directory import RunDirectory

#: Seconds between two looks.
LOOK_S = 1.0


class RunKeeper:
    """Notices that a run's directory was deleted or moved while the run goes on, and makes it again.

    Who clears a disk seldom means the run that is still going on, and what it has learnt is in memory. Logs,
    metrics and checkpoints are made again by those who write them; but nobody could resume from them without
    `run.json` and `config.yaml`, of which a copy is held here.

    Args:
        directory: The run directory, with both files in it.
        tell: Called with one line when something was lost.
        is_owner: Whether this process writes the run's record; of several machines one does, and sees to it.

    Raises:
        OSError: The files cannot be read.
    """

    def __init__(
        self, directory: RunDirectory, tell: Callable[[str], None], *, is_owner: bool = True
    ) -> None:
        self._directory = directory
        self._tell = tell
        # The record last: it is what makes a directory a run.
        paths = (directory.config_path, directory.run_json) if is_owner else ()
        self._files = {path: path.read_bytes() for path in paths}
        self._next_look = 0.0
        self._was_missing = False
        self._told = False

    def replace(self, path: Path, data: bytes) -> None:
        """Writes one of the files anew, if it is ours and not so already; a disk that refuses is told."""
        if self._files.get(path, data) == data:
            return
        try:
            replace_file(path, data)
        except OSError as error:
            self._tell(f"{path} cannot be written and stays as it was: {error.strerror or error}")
            return
        self._files[path] = data

    def look(self) -> None:
        """Called at every turn of the supervisor's loop; what is missing at two looks in a row is lost.

        A single look could fall into the middle of a deletion, whose second half would take the new files, too.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        missing = any(_is_missing(path) for path in self._files)
        if missing and self._was_missing:
            self.restore()
        self._was_missing = missing

    def restore(self) -> None:
        """Puts back what is missing, and says so."""
        missing = [path for path in self._files if _is_missing(path)]
        if not missing:
            return
        names = " and ".join(path.name for path in missing)
        lost = f"{names} of the running run in {self._directory} were deleted or moved"
        try:
            self._directory.ensure_folders()
            self._directory.claim()  # the lock went with the directory
            for path in missing:
                replace_file(path, self._files[path])
        except (MotrixError, OSError) as error:
            if not self._told:
                self._tell(f"{lost} and cannot be made again: {error}; nothing is saved until they can")
            self._told = True
            return
        self._told = False
        self._tell(
            f"{lost}: checkpoints, metrics and logs up to now may be lost; the run goes on in a new directory "
            "at the same place, and has its first checkpoint there when the next one is due"
        )


def _is_missing(path: Path) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # a network file system that hiccups has lost nothing
    return False
