"""The transition ring: one producer process, one consumer process, bounded, nothing dropped.

What orders it
    Two 64-bit counters in shared memory are the truth, each with one writer: ``committed`` (producer) and
    ``released`` (consumer), both absolute generations. Slot g lies at ``g % capacity``. Two semaphore
    eventfds carry tokens that only wake and order: ``free`` (consumer posts, producer takes) and ``filled``
    (producer posts, consumer takes). A counter is stored before its token is posted, and a slot is touched
    only after its token was taken.

What a SIGKILL of the producer can leave, by where it strikes
    reserve, after a free token was taken
        the token is lost: ``free`` is rebuilt from the counters.
    while a slot is written, or before it is counted
        the slot is torn but not committed: the successor starts at ``committed`` and writes it anew.
    commit, after ``committed`` was stored and before the token was posted
        a whole slot without a token: ``filled`` is rebuilt from the counters.
    Stores of one aligned 64-bit word and one eventfd write or read each happen entirely or not at all.

`RingConsumer.recover` does the rebuilding, in the consumer, after the producer has been reaped and before a
successor starts, so that both counters and both eventfds stand still meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import HEADER_NBYTES, SlotLayout
from transport.memory import SharedBlock
from transport.slot import DeviceSlot, SlotView
from transport.storage import HostStorage, ReadEvent, SlotMessage, SlotStorage
from transport.wakeup import Deadline, EventFd, Signal, wait_any

ConsumedSlot = SlotView | DeviceSlot
"""What a consumer gets: arrays on host memory, or tensors on device memory, under the same names."""

MIN_CAPACITY = 3
"""The producer holds two slots while the consumer reads a third. A consumer that waits for a further slot may
hold ``capacity - 2`` at most: the producer commits a slot only when it has the next."""

_COMMITTED_OFFSET = 0
_RELEASED_OFFSET = 128  # another cache line, and not the adjacent one that is prefetched with it
_HEADERS_OFFSET = 256


@dataclass(frozen=True)
class Recovery:
    """What `RingConsumer.recover` found after a dead producer."""

    next_generation: int
    """Where the successor starts."""
    last_generation: int | None
    """The newest row of the dead incarnation (or of one before it); ``None`` if none was ever committed."""
    in_ring: bool
    """That row is still in the ring, and its ``cut`` flags are set there (see `SlotStorage.mark_cut`). If not,
    it has to be marked where the consumer has put it."""
    taken: bool
    """The consumer has that row in hand or released it: copies it made before must be marked too."""


@dataclass(frozen=True)
class RingParts:
    """What both ends share of a ring."""

    storage: SlotStorage
    free: EventFd
    filled: EventFd
    committed: NDArray[np.int64]
    released: NDArray[np.int64]
    headers: NDArray[np.int64]


class Ring:
    """A ring as the parent makes it and passes it to its two workers.

    The consumer calls `consumer` once; each incarnation of the producer calls `producer` once.
    """

    def __init__(
        self, layout: SlotLayout, capacity: int, start_generation: int, storage: SlotStorage, *, poison: bool
    ) -> None:
        self.layout = layout
        self.capacity = capacity
        self.start_generation = start_generation
        self.poison = poison
        self._storage = storage
        self._control = SharedBlock.create(_HEADERS_OFFSET + capacity * HEADER_NBYTES, "ring control")
        self._free = EventFd(semaphore=True, label="ring free tokens")
        self._filled = EventFd(semaphore=True, label="ring filled tokens")

    @classmethod
    def create(
        cls,
        layout: SlotLayout,
        capacity: int = MIN_CAPACITY,
        *,
        start_generation: int = 0,
        storage: SlotStorage | None = None,
        poison: bool = False,
    ) -> Ring:
        """Make an empty ring.

        Args:
            layout: the shard's slot.
            capacity: slots, at least `MIN_CAPACITY`.
            start_generation: the first generation (a resumed run continues its count).
            storage: where payloads live, a fresh one; host memory by default.
            poison: fill slots with magic values before they are written and check them when they are taken.

        Raises:
            ValueError: capacity or start is out of range.
            TransportError: memory or descriptors are short.
        """
        if capacity < MIN_CAPACITY:
            raise ValueError(f"ring_capacity must be at least {MIN_CAPACITY}, got {capacity}")
        if start_generation < 0:
            raise ValueError(f"start_generation must not be negative, got {start_generation}")
        ring = cls(layout, capacity, start_generation, storage or HostStorage(), poison=poison)
        ring._storage.create(layout, capacity, "ring")
        committed, released = ring._counters()
        committed[0] = released[0] = start_generation
        ring._free.post(capacity)
        return ring

    @staticmethod
    def nbytes_for(layout: SlotLayout, capacity: int) -> int:
        """Bytes a ring of this size takes, control included."""
        return capacity * (layout.nbytes + HEADER_NBYTES) + _HEADERS_OFFSET

    @property
    def storage_kind(self) -> str:
        return self._storage.kind

    @property
    def committed(self) -> int:
        """Generations committed: the next one to be."""
        return int(self._counters()[0][0])

    @property
    def released(self) -> int:
        """Generations given back: the oldest one in the ring."""
        return int(self._counters()[1][0])

    def producer(self, incarnation: int = 0, message: SlotMessage | None = None) -> RingProducer:
        """This process's writing end; the consumer's message opens slots in device memory."""
        if message is not None:
            self._storage.accept(message)
        return RingProducer(self, incarnation)

    def consumer(self) -> RingConsumer:
        """This process's reading end."""
        return RingConsumer(self)

    def prefault(self) -> None:
        """Take the ring's memory now (see `SharedBlock.prefault`)."""
        self._control.prefault()
        self._storage.prefault()

    def close(self) -> None:
        """Give up this process's hold; slots must not be used afterwards."""
        self._storage.close()
        self._control.close()
        self._free.close()
        self._filled.close()

    def parts(self) -> RingParts:
        """This process's view of what both ends share."""
        committed, released = self._counters()
        return RingParts(self._storage, self._free, self._filled, committed, released, self._headers())

    def _counters(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return (
            self._control.ndarray(np.int64, 1, _COMMITTED_OFFSET),
            self._control.ndarray(np.int64, 1, _RELEASED_OFFSET),
        )

    def _headers(self) -> NDArray[np.int64]:
        return self._control.ndarray(np.int64, (self.capacity, HEADER_NBYTES // 8), _HEADERS_OFFSET)


class RingProducer:
    """The writing end: hold slot g and reserve g+1, write, commit g."""

    MAX_HELD = 2

    def __init__(self, ring: Ring, incarnation: int) -> None:
        parts = ring.parts()
        self._storage = parts.storage
        self._free = parts.free
        self._filled = parts.filled
        self._committed = parts.committed
        self._slots = parts.storage.producer_slots(parts.headers)
        self._capacity = ring.capacity
        self._poison = ring.poison
        self._next = int(parts.committed[0])
        self._held: deque[SlotView] = deque()
        self.incarnation = incarnation

    @property
    def next_generation(self) -> int:
        """The generation the next `reserve` gives."""
        return self._next

    @property
    def free_fd(self) -> int:
        """Readable while a slot is free."""
        return self._free.fileno()

    def reserve(self, stop: Signal | None = None, timeout_s: float | None = None) -> SlotView | None:
        """Get the next slot to write; waits, without CPU use, while the ring is full.

        Its generation and incarnation are set, its ``policy_version`` is -1 and its ``num_final`` 0.

        Returns:
            The slot, or ``None`` when ``stop`` was raised or the time was over before one was free.
        """
        assert len(self._held) < self.MAX_HELD, "commit a slot before reserving a third"
        if not self._take_token(stop, timeout_s):
            return None
        slot = self._open(self._next)
        self._next += 1
        self._held.append(slot)
        return slot

    def commit(self) -> None:
        """Hand the oldest held slot to the consumer; it must not be touched afterwards."""
        assert self._held, "no slot is held"
        generation = self._held[0].generation
        assert generation == int(self._committed[0]), "held slots are committed in order"
        # The order of these three is what recovery rests on.
        self._flush(generation)
        self._count(generation)
        self._post()
        self._held.popleft()

    def _take_token(self, stop: Signal | None, timeout_s: float | None) -> bool:
        return _take(self._free, stop, timeout_s)

    def _open(self, generation: int) -> SlotView:
        slot = self._slots[generation % self._capacity]
        if self._poison:
            slot.poison()
        else:
            slot.num_final = 0
        slot.generation = generation
        slot.incarnation = self.incarnation
        slot.policy_version = -1
        return slot

    def _flush(self, generation: int) -> None:
        self._storage.flush(generation % self._capacity)

    def _count(self, generation: int) -> None:
        self._committed[0] = generation + 1

    def _post(self) -> None:
        self._filled.post()


class RingConsumer:
    """The reading end: take slots in order, release them in order."""

    def __init__(self, ring: Ring) -> None:
        parts = ring.parts()
        self._storage = parts.storage
        self._free = parts.free
        self._filled = parts.filled
        self._committed = parts.committed
        self._released = parts.released
        self._slots = parts.storage.consumer_slots(parts.headers)
        self._capacity = ring.capacity
        self._start = ring.start_generation
        self._poison = ring.poison
        self._taken = int(parts.released[0])

    @property
    def filled_fd(self) -> int:
        """Readable while a slot can be taken."""
        return self._filled.fileno()

    def fileno(self) -> int:
        return self._filled.fileno()

    @property
    def outstanding(self) -> int:
        """Slots taken and not released."""
        return self._taken - int(self._released[0])

    @property
    def next_generation(self) -> int:
        """The generation the next `take` gives."""
        return self._taken

    def message(self) -> SlotMessage:
        """What each incarnation of the producer must be told before its first slot."""
        return self._storage.message()

    def take(self) -> ConsumedSlot | None:
        """The oldest slot not yet taken, or ``None``; never waits. It stays valid until it is released.

        Raises:
            TransportError: the slot is not the one that is due, or (poisoned ring) was not written in full.
        """
        if not self._filled.take():
            return None
        generation = self._taken
        slot = self._slots[generation % self._capacity]
        if slot.generation != generation or generation >= int(self._committed[0]):
            raise TransportError(
                f"ring out of order: generation {generation} is due, the slot holds {slot.generation}, "
                f"{int(self._committed[0])} are committed"
            )
        if self._poison and isinstance(slot, SlotView):
            slot.check_written()
        self._taken = generation + 1
        return slot

    def wait(self, stop: Signal | None = None, timeout_s: float | None = None) -> ConsumedSlot | None:
        """Like `take`, but waits, without CPU use, while the ring is empty.

        Returns:
            The slot, or ``None`` when ``stop`` was raised or the time was over first.
        """
        deadline = Deadline(timeout_s)
        while (slot := self.take()) is None:
            if not wait_any([self._filled], stop, deadline.left_s()):
                return None
        return slot

    def release(self, count: int = 1, *, after: ReadEvent | None = None) -> None:
        """Give the ``count`` oldest taken slots back to the producer.

        Args:
            count: slots.
            after: event recorded behind a device's last read of them; it is waited for here. Without one, a
                storage in device memory waits for all reads issued on the current stream.
        """
        assert 0 <= count <= self.outstanding, f"{count} slots to release, {self.outstanding} taken"
        if count == 0:
            return
        if after is not None:
            after.synchronize()
        else:
            self._storage.finish_reads()
        released = int(self._released[0])
        if self._poison:
            self._poison_slots(range(released, released + count))
        self._released[0] = released + count
        self._free.post(count)

    def recover(self) -> Recovery:
        """Put the ring right after the producer died. Call it once the producer has been reaped.

        Both token counts are rebuilt from the counters, and the newest committed row is marked cut if it is
        still in the ring. Slots taken before stay taken. Afterwards a successor may start.
        """
        committed, released = int(self._committed[0]), int(self._released[0])
        self._filled.drain()
        self._filled.post(committed - self._taken)
        self._free.drain()
        self._free.post(self._capacity - (committed - released))
        last = committed - 1 if committed > self._start else None
        in_ring = last is not None and last >= released
        if last is not None and in_ring:
            self._storage.mark_cut(last % self._capacity)
        return Recovery(
            next_generation=committed,
            last_generation=last,
            in_ring=in_ring,
            taken=last is not None and last < self._taken,
        )

    def _poison_slots(self, generations: range) -> None:
        # Views kept beyond their release read magic values, not the next step's.
        for generation in generations:
            slot = self._slots[generation % self._capacity]
            if isinstance(slot, SlotView):
                slot.poison()


def _take(tokens: EventFd, stop: Signal | None, timeout_s: float | None) -> bool:
    deadline = Deadline(timeout_s)
    while not tokens.take():
        if not wait_any([tokens], stop, deadline.left_s()):
            return False
    return True
