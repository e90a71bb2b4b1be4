"""Parent side: what workers print (Python, native libraries, a crash report) goes into their logs.

Each worker gets two pipes of its own, put on fd 1 and 2 while it is started, so that it inherits them before
its first instruction. One writer, one reader a pipe; the reader never blocks, and closing never waits for an
end of file, which a grandchild that outlives the worker could withhold for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import multiprocessing.resource_tracker
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from motrix_rl.logs.file import LogFile
from motrix_rl.logs.lines import format_lines, parse
from motrix_rl.logs.read import tail

MAX_LINE = 8192  # bytes; a longer line becomes several
PARTIAL_LINE_S = 1.0  # text without an end of line is shown after this long, as it may be the last words
PIPE_BYTES = 1 << 18
READ_BYTES = 1 << 16


class LineSplitter:
    """Cuts a byte stream into clean lines of text.

    A carriage return rewrites the line, as on a terminal, so that a progress bar leaves its last state.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._rest = b""
        self._since = 0.0
        self._max = max_line

    def feed(self, data: bytes, now: float) -> list[str]:
        """Takes more bytes and returns the lines that are complete.

        Args:
            data: What was read.
            now: Monotonic time in seconds.
        """
        if not self._rest:
            self._since = now
        *whole, rest = (self._rest + data).split(b"\n")
        if whole:
            self._since = now
        lines = [piece for line in whole for piece in self._pieces(line)]
        if len(rest) > self._max:
            rest = _after_return(rest)
        while len(rest) > self._max:
            lines.append(_text(rest[: self._max]))
            rest = rest[self._max :]
        self._rest = rest
        return [line for line in lines if line]

    def flush(self, now: float | None = None) -> list[str]:
        """The line that has not ended; given `now`, only if it has waited for `PARTIAL_LINE_S`."""
        if not self._rest or (now is not None and now - self._since < PARTIAL_LINE_S):
            return []
        lines = [line for line in self._pieces(self._rest) if line]
        self._rest = b""
        return lines

    def _pieces(self, line: bytes) -> list[str]:
        line = _after_return(line)
        return [_text(line[at : at + self._max]) for at in range(0, len(line), self._max)]


class WorkerOutput:
    """The pipes of one incarnation of one worker, and its log file, which only a first one must have."""

    def __init__(self, name: str, path: str | os.PathLike[str], *, is_first: bool = True) -> None:
        self.name = name
        self.path = Path(path)
        _occupy_standard_descriptors()
        self._log = LogFile(self.path, required=is_first)
        self._write_ends: list[int] = []
        self._readers: dict[int, tuple[int, LineSplitter]] = {}
        self.lost_lines = 0
        self._begin = 0  # bytes that earlier lives have written
        with contextlib.suppress(OSError):
            self._begin = self.path.stat().st_size
        self._tail_key: tuple[int, int] | None = None
        self._tail_line = ""
        for level in (logging.INFO, logging.WARNING):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            # Room for a burst while the parent is busy; an unprivileged user may be refused.
            with contextlib.suppress(OSError):
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._write_ends.append(write_end)
            self._readers[read_end] = (level, LineSplitter())

    @contextlib.contextmanager
    def redirected(self) -> Iterator[None]:
        """While it lasts, this process's fd 1 and 2 are the worker's pipes and fd 0 is empty: start it here.

        Once a worker only. Nothing else may print from this process meanwhile. The worker gets no terminal to
        read from, so that a library's prompt fails instead of stopping it.
        """
        assert self._write_ends, f"{self.name} was started already"
        # The tracker that multiprocessing starts beside the first worker would keep the pipes open for ever.
        multiprocessing.resource_tracker.ensure_running()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1, 2)]
        try:
            for fd, end in zip((0, 1, 2), (null, *self._write_ends), strict=True):
                os.dup2(end, fd)
            yield
        finally:
            for fd, copy in zip((0, 1, 2), saved, strict=True):
                os.dup2(copy, fd)
                os.close(copy)
            for end in (null, *self._write_ends):
                os.close(end)
            self._write_ends = []

    def filenos(self) -> list[int]:
        """Read ends that are still open, for the parent's poll."""
        return list(self._readers)

    def drain(self, max_bytes: int = 1 << 20) -> int:
        """Moves what has been printed into the log; never blocks on the worker.

        Args:
            max_bytes: Limit of a pipe and call; a worker that prints without end cannot hold the parent.

        Returns:
            Number of lines written.
        """
        now = time.monotonic()
        written = 0
        for fd, (level, splitter) in list(self._readers.items()):
            lines: list[str] = []
            taken = 0
            while taken < max_bytes:
                try:
                    data = os.read(fd, READ_BYTES)
                except BlockingIOError:
                    lines += splitter.flush(now)
                    break
                except OSError:
                    data = b""
                if not data:
                    lines += splitter.flush()
                    os.close(fd)
                    del self._readers[fd]
                    break
                taken += len(data)
                lines += splitter.feed(data, now)
            self._write(level, lines)
            written += len(lines)
        return written

    def last_line(self) -> str:
        """Newest message of this life without its prefix, whoever wrote it: the worker or this pump."""
        try:
            status = self.path.stat()
            key = (status.st_size, status.st_mtime_ns)
            if status.st_size < self._begin:
                self._begin = 0  # a log that was begun anew
            if key != self._tail_key:
                lines = tail(self.path, 1) if status.st_size > self._begin else []
                parsed = parse(lines[0]) if lines else None
                self._tail_line = parsed.message if parsed else (lines[0] if lines else "")
                self._tail_key = key
        except OSError:
            return self._tail_line
        return self._tail_line

    def close(self) -> None:
        """Takes what is there and closes; does not wait for the worker or its children."""
        self.drain()
        for fd, (level, splitter) in list(self._readers.items()):
            self._write(level, splitter.flush())
            os.close(fd)
        self._readers.clear()
        for end in self._write_ends:
            os.close(end)
        self._write_ends = []
        self._log.close()

    def _write(self, level: int, lines: list[str]) -> None:
        if lines and not self._log.write(format_lines(self.name, level, "\n".join(lines))):
            self.lost_lines += len(lines)  # a full disk must not end a run


class OutputPump:
    """The outputs of all workers of one parent."""

    def __init__(self) -> None:
        self._outputs: dict[str, WorkerOutput] = {}

    def add(self, name: str, path: str | os.PathLike[str]) -> WorkerOutput:
        """Makes the pipes for a worker about to start; those of its predecessor are emptied and closed.

        Raises:
            OSError: No descriptors left, or the log of a first incarnation cannot be opened.
        """
        old = self._outputs.pop(name, None)
        if old is not None:
            old.close()
        self._outputs[name] = output = WorkerOutput(name, path, is_first=old is None)
        return output

    def filenos(self) -> list[int]:
        """Read ends of all workers."""
        return [fd for output in self._outputs.values() for fd in output.filenos()]

    def drain(self) -> int:
        """Moves what all workers have printed into their logs; returns the number of lines. Never blocks."""
        return sum(output.drain() for output in self._outputs.values())

    def last_line(self, name: str) -> str:
        """Newest line of a worker's log; empty for a worker that has said nothing."""
        output = self._outputs.get(name)
        return output.last_line() if output else ""

    @property
    def lost_lines(self) -> int:
        """Lines that the disk did not take."""
        return sum(output.lost_lines for output in self._outputs.values())

    def remove(self, name: str) -> None:
        """Empties and closes the pipes of a worker that is gone; its log stays."""
        output = self._outputs.pop(name, None)
        if output is not None:
            output.close()

    def close(self) -> None:
        """Empties and closes everything."""
        for name in list(self._outputs):
            self.remove(name)


def _occupy_standard_descriptors() -> None:
    """In a process started without fd 0, 1 or 2, the next file or pipe would become one of them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _after_return(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="backslashreplace")
