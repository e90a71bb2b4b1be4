"""Puts the shards of many collectors back together, one generation at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from transport import DeviceSlot, RingConsumer, SlotView, TransportError

#: One collector's part of a generation, in host or in device memory.
Shard = SlotView | DeviceSlot


@dataclass
class CollectorEndpoint:
    """The learner's end of one collector: its ring, and which environment columns it fills.

    One learner rank owns an endpoint; nothing else reads the ring.

    Attributes:
        collector: id of the collector.
        consumer: reading end of its ring.
        env_lo: first column of the rank's replay that this collector fills.
        env_hi: one past the last one.
        incarnation: life of the collector whose slots are expected now.
    """

    collector: int
    consumer: RingConsumer
    env_lo: int
    env_hi: int
    incarnation: int = 0
    restarted_at: int = -1  #: generation at which its present life began, if it is not the first
    seated: deque[Shard] = field(default_factory=deque)

    def drain(self) -> int:
        """Takes every slot that is there without waiting; returns how many."""
        taken = 0
        while (slot := self.consumer.take()) is not None:
            self.seated.append(slot)
            taken += 1
        return taken


class GenerationAssembler:
    """Seats shards by absolute generation and pops complete generations in order.

    It holds the slots themselves, not copies: a slot stays in its ring until :meth:`release_popped`, and so
    a collector can lead the slowest collector of its rank by at most the ring's capacity.
    """

    def __init__(self, endpoints: Sequence[CollectorEndpoint], start_generation: int = 0) -> None:
        if not endpoints:
            raise ValueError("a learner needs at least one collector")
        self.endpoints = list(endpoints)
        self.next_generation = start_generation
        self._popped = 0

    def drain(self) -> int:
        """Takes what every ring has; returns the number of shards taken."""
        return sum(endpoint.drain() for endpoint in self.endpoints)

    @property
    def complete(self) -> int:
        """Number of generations (absolute) whose shards have all arrived."""
        return self.next_generation + min(len(endpoint.seated) for endpoint in self.endpoints)

    def missing(self) -> list[CollectorEndpoint]:
        """Endpoints that the next generation still waits for."""
        return [endpoint for endpoint in self.endpoints if not endpoint.seated]

    def pop(self) -> list[Shard]:
        """The shards of the next generation, in collector order. Call :meth:`release_popped` after reading.

        Raises:
            TransportError: a shard is of another generation or incarnation than the one expected, which
                means that the ring's order was broken.
        """
        shards: list[Shard] = []
        for endpoint in self.endpoints:
            slot = endpoint.seated.popleft()
            if slot.generation != self.next_generation:
                raise TransportError(
                    f"collector {endpoint.collector} delivered generation {slot.generation} where "
                    f"{self.next_generation} was due"
                )
            shards.append(slot)
        self.next_generation += 1
        self._popped += 1
        return shards

    def release_popped(self) -> None:
        """Gives the slots of all popped generations back to their producers."""
        if self._popped:
            for endpoint in self.endpoints:
                endpoint.consumer.release(self._popped)
            self._popped = 0
