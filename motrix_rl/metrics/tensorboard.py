"""TensorBoard event files by tensorboard's own record format; neither torch nor tensorflow is imported.

`torch.utils.tensorboard` would bring torch (2 to 4 s) into the parent. tensorboard's `EventFileWriter`
imports tensorflow where that is installed, and blocks its caller when its thread falls behind; the record
writer below it does neither.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from motrix_rl.runs.atomic import is_at


class EventFile:
    """One event file, made when there is something to write.

    The import takes about 0.2 s on an idle core, so it runs in a thread from the first record on; records
    wait in a list until it is done. All writing is done by the caller's thread.

    Args:
        directory: Made if missing.
        on_error: Called with one line, once; nothing is written after that.
    """

    def __init__(self, directory: Path, on_error: Callable[[str], None]) -> None:
        self._directory = directory
        self._on_error = on_error
        self._pending: list[tuple[float, int, dict[str, float]]] = []
        self._loader: threading.Thread | None = None
        self._modules: tuple[Any, Any, Any] | None = None
        self._load_error: ImportError | None = None
        self._file: BinaryIO | None = None
        self._records: Any = None
        self._given_up = False

    def add(self, wall_time: float, step: int, scalars: dict[str, float]) -> None:
        """Adds the scalars of one moment.

        Args:
            wall_time: Unix time, seconds.
            step: Horizontal axis.
            scalars: Values by tag.
        """
        if self._given_up:
            return
        self._pending.append((wall_time, step, scalars))
        if self._loader is None:
            self._loader = threading.Thread(target=self._load, name="tensorboard-import", daemon=True)
            self._loader.start()
        elif not self._loader.is_alive():
            self._write_pending()

    def close(self) -> None:
        """Writes what waits and closes the file."""
        if self._loader is not None:
            self._loader.join()
            self._write_pending()
        self._give_up(None)

    def _load(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer import record_writer
        except ImportError as error:
            self._load_error = error
        else:
            self._modules = (event_pb2, summary_pb2, record_writer)

    def _write_pending(self) -> None:
        if self._given_up:
            return
        if self._modules is None:
            self._give_up(f"no TensorBoard events: {self._load_error}")
            return
        event_pb2, summary_pb2, record_writer = self._modules
        try:
            file = self._file
            if file is None or not is_at(file.fileno(), file.name):  # at first, or its directory was deleted
                file = self._open(event_pb2, record_writer)
            for wall_time, step, scalars in self._pending:
                values = [summary_pb2.Summary.Value(tag=tag, simple_value=v) for tag, v in scalars.items()]
                event = event_pb2.Event(
                    wall_time=wall_time, step=step, summary=summary_pb2.Summary(value=values)
                )
                self._records.write(event.SerializeToString())
            file.flush()
            self._pending.clear()
        except OSError as error:
            self._give_up(f"no TensorBoard events: {self._directory}: {error.strerror or error}")

    def _open(self, event_pb2: Any, record_writer: Any) -> BinaryIO:
        if self._file is not None:
            self._file.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        name = (
            f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{id(self):x}"
        )
        self._file = open(self._directory / name, "wb")  # noqa: SIM115 - lives as long as the writer
        self._records = record_writer.RecordWriter(self._file)
        header = event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2")
        self._records.write(header.SerializeToString())
        return self._file

    def _give_up(self, reason: str | None) -> None:
        self._given_up = True
        self._pending.clear()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                reason = reason or f"TensorBoard events are cut short: {error.strerror or error}"
            self._file = None
        if reason is not None:
            self._on_error(reason)
