"""The file behind a log, wherever its directory has gone meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from motrix_rl.runs.atomic import is_at


class LogFile:
    """A file that several processes append whole lines to, each by one system call; they share no lock.

    A log whose directory was deleted or moved is begun anew at its path. A disk that refuses costs lines, and
    disturbs nobody.

    Args:
        path: The file; its folder is made if missing.
        required: Whether a file that cannot be opened is an error; else the next line tries again.

    Raises:
        OSError: The file is required and cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, required: bool = True) -> None:
        self._path = Path(path)
        self._fd = -1
        try:
            self._open()
        except OSError:
            if required:
                raise

    def write(self, text: str) -> bool:
        """Appends text that ends with a line; returns whether the disk took it."""
        try:
            if self._fd < 0 or not is_at(self._fd, self._path):
                self._open()
        except OSError:
            if self._fd < 0:
                return False  # else: the file that is still open is better than none
        try:
            os.write(self._fd, text.encode(errors="backslashreplace"))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Closes the file. May be called more than once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.close()
        self._fd = fd
