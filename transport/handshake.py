"""The start of a run: slots are delivered once an incarnation, and everybody starts together.

Two things and no more. Deliveries go through shared memory (one row per collector, written by its learner)
with an eventfd as doorbell: a collector that is killed while it reads leaves no half-read message behind. The
ready barrier is one row per worker, written by that worker, and one level raised by the parent.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.memory import SharedBlock
from transport.storage import SlotMessage
from transport.wakeup import Deadline, EventFd, Signal, wait_any

MAX_MESSAGE_NBYTES = 16 << 10
_ROW_WORDS = 8
_INCARNATION, _LENGTH, _CHECKSUM = 0, 1, 2
_NOTHING = -1


class StartupHandshake:
    """One handshake per run, made by the parent and passed to every worker (cut down by `for_worker`).

    Writers: each worker its ready row; each learner the delivery rows of the collectors it owns; the parent
    the release. A row of a dead incarnation is overwritten by the next delivery and never read.
    """

    def __init__(
        self,
        workers: tuple[str, ...],
        collectors: tuple[str, ...],
        block: SharedBlock,
        released: Signal,
        doorbells: dict[str, EventFd],
    ) -> None:
        self.workers = workers
        self.collectors = collectors
        self._block = block
        self._released = released
        self._doorbells = doorbells
        self._received: set[tuple[str, int]] = set()

    @classmethod
    def create(cls, workers: Sequence[str], collectors: Sequence[str] = ()) -> StartupHandshake:
        """Make the handshake of a run.

        Args:
            workers: everyone the barrier waits for, by name.
            collectors: those among them that get slots delivered.

        Raises:
            ValueError: names are not unique, or a collector is no worker.
        """
        if len(set(workers)) != len(workers) or not set(collectors) <= set(workers):
            raise ValueError(f"names must be unique and collectors workers: {workers=}, {collectors=}")
        nbytes = len(workers) * _ROW_WORDS * 8 + len(collectors) * (_ROW_WORDS * 8 + MAX_MESSAGE_NBYTES)
        handshake = cls(
            tuple(workers),
            tuple(collectors),
            SharedBlock.create(nbytes, "startup handshake"),
            Signal("ready barrier"),
            {name: EventFd(label=f"slot delivery of {name}") for name in collectors},
        )
        handshake._ready().fill(_NOTHING)
        handshake._rows()[:, _INCARNATION] = _NOTHING
        return handshake

    def for_worker(self, collectors: Iterable[str] = ()) -> StartupHandshake:
        """The same with only the doorbells of ``collectors``: a learner's own ones, or a collector's."""
        doorbells = {name: self._doorbells[name] for name in collectors}
        return StartupHandshake(self.workers, self.collectors, self._block, self._released, doorbells)

    # Slots

    def deliver(self, collector: str, incarnation: int, message: SlotMessage) -> None:
        """In the learner: give ``incarnation`` of ``collector`` its slots; exactly once.

        Raises:
            TransportError: this incarnation, or a later one, already got its message.
        """
        index = self._collector_index(collector)
        row = self._rows()[index]
        if incarnation <= int(row[_INCARNATION]):
            raise TransportError(
                f"slots of {collector} were already delivered to incarnation {int(row[_INCARNATION])}; "
                f"there is exactly one message an incarnation, and this is for {incarnation}"
            )
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        assert len(body) <= MAX_MESSAGE_NBYTES, f"slot message of {len(body)} bytes"
        self._bodies()[index, : len(body)] = np.frombuffer(body, dtype=np.uint8)
        row[_LENGTH] = len(body)
        row[_CHECKSUM] = zlib.crc32(body)
        row[_INCARNATION] = incarnation
        self._doorbells[collector].post()

    def receive(
        self,
        collector: str,
        incarnation: int,
        stop: Signal | None = None,
        timeout_s: float | None = None,
    ) -> SlotMessage | None:
        """In the collector: wait for the slots of this incarnation; older messages are skipped.

        Returns:
            The message, or ``None`` when ``stop`` was raised or the time was over first.

        Raises:
            TransportError: it was received before, or a later incarnation is being served.
        """
        if (collector, incarnation) in self._received:
            raise TransportError(f"{collector} asked twice for the slots of incarnation {incarnation}")
        row = self._rows()[self._collector_index(collector)]
        doorbell = self._doorbells[collector]
        deadline = Deadline(timeout_s)
        while True:
            doorbell.drain()  # before looking, so that no delivery is missed
            if int(row[_INCARNATION]) >= incarnation:
                break
            if not wait_any([doorbell], stop, deadline.left_s()):
                return None
        message = self._read(collector, incarnation)
        self._received.add((collector, incarnation))
        return message

    def _read(self, collector: str, incarnation: int) -> SlotMessage:
        index = self._collector_index(collector)
        row = self._rows()[index]
        body = bytes(self._bodies()[index, : int(row[_LENGTH])])
        if int(row[_INCARNATION]) != incarnation or int(row[_CHECKSUM]) != zlib.crc32(body):
            raise TransportError(
                f"{collector}, incarnation {incarnation}, found slots for incarnation "
                f"{int(row[_INCARNATION])}: a later life of it was started"
            )
        message = pickle.loads(body)
        assert isinstance(message, SlotMessage)
        return message

    # Barrier

    def mark_ready(self, worker: str, incarnation: int = 0) -> None:
        """In the worker: say that this incarnation is built and warm."""
        self._ready()[self._worker_index(worker), _INCARNATION] = incarnation

    def ready_workers(self) -> frozenset[str]:
        """In the parent: who has said so."""
        ready = self._ready()[:, _INCARNATION]
        return frozenset(name for i, name in enumerate(self.workers) if int(ready[i]) != _NOTHING)

    def ready_incarnation(self, worker: str) -> int | None:
        """In the parent: the newest incarnation of ``worker`` that is ready."""
        incarnation = int(self._ready()[self._worker_index(worker), _INCARNATION])
        return None if incarnation == _NOTHING else incarnation

    def release(self) -> None:
        """In the parent: let everybody start."""
        self._released.set()

    @property
    def released(self) -> bool:
        return self._released.is_set()

    def wait_released(
        self, stop: Signal | None = None, timeout_s: float | None = None, *, barrier: bool = True
    ) -> bool:
        """In the worker: wait for the release.

        ``barrier=False`` (a restarted collector, or one driven by hand) does not wait.

        Returns:
            Whether to start; ``False`` when ``stop`` was raised or the time was over first.
        """
        return not barrier or bool(wait_any([self._released], stop, timeout_s))

    def close(self) -> None:
        """Give up this process's hold."""
        self._block.close()
        self._released.close()
        for doorbell in self._doorbells.values():
            doorbell.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_received": set()}

    def _worker_index(self, worker: str) -> int:
        if worker not in self.workers:
            raise ValueError(f"no worker is called {worker!r}; there are {', '.join(self.workers)}")
        return self.workers.index(worker)

    def _collector_index(self, collector: str) -> int:
        if collector not in self._doorbells:
            raise ValueError(
                f"no slots are delivered to {collector!r} here, only to {sorted(self._doorbells)}"
            )
        return self.collectors.index(collector)

    def _ready(self) -> NDArray[np.int64]:
        return self._block.ndarray(np.int64, (len(self.workers), _ROW_WORDS))

    def _rows(self) -> NDArray[np.int64]:
        offset = len(self.workers) * _ROW_WORDS * 8
        return self._block.ndarray(np.int64, (len(self.collectors), _ROW_WORDS), offset)

    def _bodies(self) -> NDArray[np.uint8]:
        offset = (len(self.workers) + len(self.collectors)) * _ROW_WORDS * 8
        return self._block.ndarray(np.uint8, (len(self.collectors), MAX_MESSAGE_NBYTES), offset)
