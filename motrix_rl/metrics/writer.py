"""Writing the record of a run: one JSON line an interval, and the same figures for TensorBoard."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motrix_rl.metrics.tensorboard import EventFile
from motrix_rl.runs.atomic import is_at
from motrix_rl.runs.plain import to_plain

logger = logging.getLogger(__name__)


class MetricsWriter:
    """Appends to `metrics.jsonl`. One writer: the process that owns the run.

    A disk that refuses is reported once, and again when it takes records; it ends nothing: the run is worth
    more than its record. A file that was deleted or moved under it is begun anew.

    Args:
        path: The file; appended to when it is there (resume).
        tensorboard_dir: Directory for event files; None for none.
        step_key: Field that is TensorBoard's horizontal axis.
        on_error: Called with one line when one of the two outputs fails, and when this one works again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tensorboard_dir: str | os.PathLike[str] | None = None,
        *,
        step_key: str = "env_steps",
        on_error: Callable[[str], None] = logger.warning,
    ) -> None:
        self.path = Path(path)
        self._step_key = step_key
        self._on_error = on_error
        self._fd: int | None = None
        self._lost = 0
        self._torn = False
        self._count = 0
        self._events = None if tensorboard_dir is None else EventFile(Path(tensorboard_dir), on_error)

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record.

        Args:
            record: Plain data, nested as you like; NumPy scalars are taken as numbers, NaN and infinities as
                null. `time` (Unix seconds) is added where it is missing. TensorBoard gets the numbers, nested
                names joined by `/`.

        Raises:
            TypeError: Something in it is no plain data.
        """
        data = {"time": round(time.time(), 3), **{str(key): to_plain(value) for key, value in record.items()}}
        line = json.dumps(data, allow_nan=False, ensure_ascii=False) + "\n"
        self._append(line.encode(errors="backslashreplace"))
        if self._events is not None:
            step = data.get(self._step_key)
            self._events.add(
                float(data["time"]),
                int(step) if isinstance(step, (int, float)) else self._count,
                scalars(data),
            )
        self._count += 1

    def close(self) -> None:
        """Closes both outputs."""
        self._close()
        if self._events is not None:
            self._events.close()

    def _append(self, line: bytes) -> None:
        try:
            if self._fd is None or not is_at(self._fd, self.path):
                self._close()
                self._fd = self._open()
            # After a line that was cut short, the next one starts on a line of its own.
            data = b"\n" + line if self._torn else line
            written = os.write(self._fd, data)
            self._torn = written < len(data)
            if self._torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if self._lost == 0:
                self._on_error(f"metrics are not recorded: {self.path}: {error.strerror or error}")
            self._lost += 1
        else:
            if self._lost:
                self._on_error(f"metrics are recorded again; {self._lost} records are lost")
            self._lost = 0

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(fd).st_size
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        return fd


def scalars(data: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested record, names joined by `/`; `time` is an axis, not a figure."""
    found: dict[str, float] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found.update(scalars(value, f"{prefix}{key}/"))
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and (prefix or key != "time"):
            found[prefix + key] = float(value)
    return found
