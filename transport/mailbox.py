"""The weight mailbox: the newest policy, from one writer to many readers.

What orders it
    Three buffers, each with a version and a checksum, all written by one writer. The writer takes the buffer
    with the oldest version, marks it invalid, writes payload and checksum, and stores the version last. A
    reader takes the newest version, copies the payload into memory of its own, and accepts the copy if the
    version still stands and the checksum of what it copied fits (the checksum also covers processors that
    reorder loads). Nobody waits for anybody, and no lock exists: a reader that died blocks nobody, and a
    writer that died in the middle leaves the two older versions whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import align
from transport.memory import SharedBlock
from transport.wakeup import Deadline, EventFd, Signal, wait_any

NUM_BUFFERS = 3
MAX_READ_TRIES = 4
NO_VERSION = -1

_HEADER_WORDS = 8  # one cache line a buffer: version, sum, xor
_VERSION, _SUM, _XOR = 0, 1, 2


class WeightMailbox:
    """A mailbox as the parent makes it and passes it to the writer and, by `for_reader`, to each reader."""

    def __init__(self, block: SharedBlock, nbytes: int, doorbells: dict[int, EventFd]) -> None:
        self.nbytes = nbytes
        self._block = block
        self._doorbells = doorbells

    @classmethod
    def create(cls, nbytes: int, num_doorbells: int = 0) -> WeightMailbox:
        """Make an empty mailbox.

        Args:
            nbytes: size of one payload (flat float32), in bytes.
            num_doorbells: readers that are woken by each publication (numbered from 0).

        Raises:
            ValueError: the size is not that of float32 values.
            TransportError: memory or descriptors are short.
        """
        if nbytes <= 0 or nbytes % 4:
            raise ValueError(f"a mailbox payload is a positive number of float32 values, got {nbytes} bytes")
        block = SharedBlock.create(cls.nbytes_for(nbytes), "weight mailbox")
        mailbox = cls(block, nbytes, {i: EventFd(label="weight doorbell") for i in range(num_doorbells)})
        mailbox.headers()[:, _VERSION] = NO_VERSION
        return mailbox

    @staticmethod
    def nbytes_for(payload_nbytes: int) -> int:
        """Bytes of shared memory a mailbox of this payload takes."""
        return NUM_BUFFERS * (_HEADER_WORDS * 8 + align(payload_nbytes))

    def for_reader(self, doorbell: int | None = None) -> WeightMailbox:
        """The same with only the doorbell a reader needs, to be passed to that reader's process."""
        return WeightMailbox(
            self._block, self.nbytes, {} if doorbell is None else {doorbell: self._doorbells[doorbell]}
        )

    def writer(self) -> WeightWriter:
        """The one writing end."""
        return WeightWriter(self, list(self._doorbells.values()))

    def reader(self, doorbell: int | None = None) -> WeightReader:
        """A reading end of this process, woken by ``doorbell`` if one is named."""
        return WeightReader(self, None if doorbell is None else self._doorbells[doorbell])

    def headers(self) -> NDArray[np.int64]:
        """[NUM_BUFFERS, 8] version and checksum of each buffer."""
        return self._block.ndarray(np.int64, (NUM_BUFFERS, _HEADER_WORDS))

    def payloads(self) -> NDArray[np.int64]:
        """[NUM_BUFFERS, words] the payloads, padded with zeros to whole cache lines."""
        offset = NUM_BUFFERS * _HEADER_WORDS * 8
        return self._block.ndarray(np.int64, (NUM_BUFFERS, align(self.nbytes) // 8), offset)

    def prefault(self) -> None:
        """Take the mailbox's memory now (see `SharedBlock.prefault`)."""
        self._block.prefault()

    def close(self) -> None:
        """Give up this process's hold."""
        self._block.close()
        for doorbell in self._doorbells.values():
            doorbell.close()


class WeightWriter:
    """The writing end. A new writer goes on above the newest version it finds."""

    def __init__(self, mailbox: WeightMailbox, doorbells: list[EventFd]) -> None:
        self._mailbox = mailbox
        self._doorbells = doorbells
        self._headers = mailbox.headers()
        self._payloads = mailbox.payloads()
        self._size = mailbox.nbytes // 4
        self.version = int(self._headers[:, _VERSION].max())

    def publish(self, version: int, payload: NDArray[np.float32]) -> None:
        """Make ``payload`` [nbytes / 4] float32 the newest version; never waits.

        Raises:
            ValueError: the version does not grow, or the payload has another size or type.
        """
        if version <= self.version:
            raise ValueError(f"weight versions must grow: {version} after {self.version}")
        if payload.dtype != np.float32 or payload.shape != (self._size,):
            raise ValueError(f"expected float32[{self._size}], got {payload.dtype}{list(payload.shape)}")
        index = int(self._headers[:, _VERSION].argmin())
        self._invalidate(index)
        self._fill(index, version, payload)
        self._headers[index, _VERSION] = version
        self.version = version
        for doorbell in self._doorbells:
            doorbell.post()

    def _invalidate(self, index: int) -> None:
        self._headers[index, _VERSION] = NO_VERSION

    def _fill(self, index: int, version: int, payload: NDArray[np.float32]) -> None:
        words = self._payloads[index]
        words.view(np.float32)[: self._size] = payload
        self._headers[index, _SUM], self._headers[index, _XOR] = checksum(words, version)


class WeightReader:
    """A reading end, with the newest consistent payload in memory of its own."""

    def __init__(self, mailbox: WeightMailbox, doorbell: EventFd | None) -> None:
        self._mailbox = mailbox
        self._doorbell = doorbell
        self._headers = mailbox.headers()
        self._payloads = mailbox.payloads()
        self._size = mailbox.nbytes // 4
        words = self._payloads.shape[1]
        # Two, so that a copy that turns out torn never touches the one in use.
        self._current: NDArray[np.int64] = np.zeros(words, dtype=np.int64)
        self._spare: NDArray[np.int64] = np.zeros(words, dtype=np.int64)
        self.version = NO_VERSION
        self.torn_reads = 0

    @property
    def payload(self) -> NDArray[np.float32]:
        """[nbytes / 4] float32 of `version`; stays as it is until `poll` returns a newer one."""
        return self._current.view(np.float32)[: self._size]

    @property
    def doorbell_fd(self) -> int:
        """Readable after a publication, until `poll` or `wait` looked."""
        if self._doorbell is None:
            raise TransportError("this mailbox reader has no doorbell")
        return self._doorbell.fileno()

    def poll(self) -> int | None:
        """Copy the newest version if it is newer than the one in hand; never waits.

        Returns:
            The new version, or ``None`` if there is none, or none could be read whole (``torn_reads`` counts
            each torn copy; the payload in hand stays).
        """
        if self._doorbell is not None:
            self._doorbell.take()  # before looking, so that no publication is missed
        for _ in range(MAX_READ_TRIES):
            versions = self._headers[:, _VERSION].copy()
            index = int(versions.argmax())
            version = int(versions[index])
            if version <= self.version:
                return None
            if self._copy(index, version):
                self._current, self._spare = self._spare, self._current
                self.version = version
                return version
            self.torn_reads += 1
        return None

    def wait(self, at_least: int, stop: Signal | None = None, timeout_s: float | None = None) -> int | None:
        """Wait by the doorbell until a version of at least ``at_least`` is in hand.

        Returns:
            The version in hand, or ``None`` when ``stop`` was raised or the time was over first.
        """
        deadline = Deadline(timeout_s)
        while self.version < at_least:
            if self.poll() is None and not wait_any([self.doorbell_fd], stop, deadline.left_s()):
                return None
        return self.version

    def fetch(self, version: int) -> bool:
        """Copy exactly ``version``, if it is still among the newest three; never waits.

        Returns:
            Whether it is in hand now.
        """
        assert version >= self.version, "versions a reader sees never fall"
        if self.version == version:
            return True
        if self._doorbell is not None:
            self._doorbell.take()  # before looking, so that no publication is missed
        for index in range(NUM_BUFFERS):
            if int(self._headers[index, _VERSION]) == version and self._copy(index, version):
                self._current, self._spare = self._spare, self._current
                self.version = version
                return True
        return False

    def _copy(self, index: int, version: int) -> bool:
        self._load(index)
        expected = (int(self._headers[index, _SUM]), int(self._headers[index, _XOR]))
        return int(self._headers[index, _VERSION]) == version and checksum(self._spare, version) == expected

    def _load(self, index: int) -> None:
        np.copyto(self._spare, self._payloads[index])


def checksum(words: NDArray[np.int64], version: int) -> tuple[int, int]:
    """Wrapping sum and exclusive or of ``words``, with the version in both, as two int64."""
    total: Any = np.add.reduce(words)
    parity: Any = np.bitwise_xor.reduce(words)
    salt = np.int64(version ^ 0x5DEECE66D)
    with np.errstate(over="ignore"):
        return int(total + salt), int(parity ^ salt)
