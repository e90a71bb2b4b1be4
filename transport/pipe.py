"""Message pipes: one writer, one reader, whole messages or none.

A message is a pickle behind its length. The writer never waits longer than it said, whatever the reader does:
a full pipe drops the message, a dead reader closes the pipe. A message that was begun is finished before the
next one, so the reader never sees a torn one; what a killed writer left unfinished is thrown away.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
from typing import Any

from transport.descriptors import Descriptor, descriptor_error
from transport.errors import TransportError
from transport.wakeup import Deadline

MAX_MESSAGE_NBYTES = 64 << 20
_LENGTH = struct.Struct("<I")
_READ_NBYTES = 1 << 16
_DRAIN_NBYTES = 4 << 20  # one drain ends even if the writer never does


def message_pipe(label: str = "message pipe") -> tuple[PipeReader, PipeWriter]:
    """Make a pipe; pass one end to another process as an argument of its start, and close it here then.

    Raises:
        TransportError: descriptors are short.
    """
    try:
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise descriptor_error(error, label) from error
    return PipeReader(Descriptor(read_fd, label)), PipeWriter(Descriptor(write_fd, label))


class PipeWriter:
    """The writing end; one thread of one process uses it."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._rest = memoryview(b"")
        self.dropped = 0
        """Messages that found the pipe full or closed."""

    @property
    def closed(self) -> bool:
        """The reader is gone, or this end was closed."""
        return self._descriptor.closed

    @property
    def pending(self) -> int:
        """Bytes of a begun message that are still to be written."""
        return len(self._rest)

    def fileno(self) -> int:
        return self._descriptor.fileno()

    def send(self, message: Any, timeout_s: float = 0.0) -> bool:
        """Send ``message``, waiting at most ``timeout_s`` for room.

        Returns:
            Whether it was taken: written, or begun (the rest follows with the next `send` or `flush`).
            ``False``: dropped, because the pipe was full or the reader is gone.

        Raises:
            ValueError: the message is too large.
        """
        deadline = Deadline(timeout_s)
        if not self._write_rest(deadline):
            self.dropped += 1
            return False
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        if len(body) > MAX_MESSAGE_NBYTES:
            raise ValueError(f"message of {len(body)} bytes; a pipe takes {MAX_MESSAGE_NBYTES}")
        frame = memoryview(_LENGTH.pack(len(body)) + body)
        self._rest = frame
        self._write_rest(deadline)
        if len(self._rest) == len(frame) or self.closed:
            self._rest = memoryview(b"")
            self.dropped += 1
            return False
        return True

    def flush(self, timeout_s: float = 0.0) -> bool:
        """Write what is left of a begun message; returns whether nothing is left."""
        return self._write_rest(Deadline(timeout_s))

    def close(self) -> None:
        """Close this end; what is pending is lost."""
        self._rest = memoryview(b"")
        self._descriptor.close()

    def _write_rest(self, deadline: Deadline) -> bool:
        """Write the rest until it is empty or the time is over; closes the pipe if the reader is gone."""
        if self.closed:
            return False
        while self._rest:
            try:
                self._rest = self._rest[os.write(self._descriptor.fileno(), self._rest) :]
            except BlockingIOError:
                if deadline.over:
                    return False
                _wait_writable(self._descriptor.fileno(), deadline)
            except BrokenPipeError:
                self.close()
                return False
        return True

    def __reduce__(self) -> tuple[type[PipeWriter], tuple[Descriptor]]:
        assert not self._rest, "a pipe end that was used stays with its process"
        return PipeWriter, (self._descriptor,)


class PipeReader:
    """The reading end; one thread of one process uses it."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._ended = False

    @property
    def closed(self) -> bool:
        """Every writer is gone and everything they sent was drained, or this end was closed."""
        return self._ended or self._descriptor.closed

    def fileno(self) -> int:
        """Readable while there is something to drain, and at the end."""
        return self._descriptor.fileno()

    def drain(self) -> list[Any]:
        """All whole messages that have arrived, oldest first; never waits.

        Raises:
            TransportError: what arrived is no message of ours.
        """
        budget = _DRAIN_NBYTES
        while not self.closed and budget > 0:
            try:
                chunk = os.read(self._descriptor.fileno(), _READ_NBYTES)
            except BlockingIOError:
                break
            if not chunk:
                self._ended = True
            budget -= len(chunk)
            self._buffer += chunk
        return self._messages()

    def close(self) -> None:
        """Close this end; the writer sees it with its next message."""
        self._descriptor.close()

    def _messages(self) -> list[Any]:
        messages: list[Any] = []
        begin = 0
        while len(self._buffer) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, begin)
            if length > MAX_MESSAGE_NBYTES:
                raise TransportError(f"a pipe carries something else than messages (length {length})")
            end = begin + _LENGTH.size + length
            if end > len(self._buffer):
                break
            messages.append(pickle.loads(self._buffer[begin + _LENGTH.size : end]))
            begin = end
        del self._buffer[:begin]
        return messages


def _wait_writable(fd: int, deadline: Deadline) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    left_s = deadline.left_s()
    poller.poll(None if left_s is None else left_s * 1000.0)
