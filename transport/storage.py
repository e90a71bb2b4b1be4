"""Where the payloads of a ring's slots live. The ring's logic is the same for every storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import SlotLayout
from transport.memory import SharedBlock
from transport.slot import DeviceSlot, SlotView

HeaderRows = NDArray[np.int64]
"""[capacity, 8]: the slots' headers, in the ring's control memory."""


class ReadEvent(Protocol):
    """What marks the end of a device's reads, for instance a recorded `torch.cuda.Event`."""

    def synchronize(self) -> object: ...


@dataclass(frozen=True)
class SlotMessage:
    """What a consumer tells an incarnation of its producer before the first slot (see `StartupHandshake`)."""

    kind: str
    """The storage's `SlotStorage.kind`."""
    handles: bytes
    """How to open device memory in the producer; empty for host memory."""
    weights: bytes = b""
    """How to open a weight mailbox in device memory; empty where the mailbox is in host memory."""


class SlotStorage(ABC):
    """Payload memory of one ring.

    Made by the parent without torch. The consumer owns device memory and opens first; the producer writes
    host arrays and calls `flush` before a slot is counted as committed.
    """

    kind: ClassVar[str]

    @abstractmethod
    def create(self, layout: SlotLayout, capacity: int, label: str) -> None:
        """In the parent: fix the sizes, and make what the parent has to make."""

    @abstractmethod
    def producer_slots(self, headers: HeaderRows) -> Sequence[SlotView]:
        """In the producer: one writable host view per slot."""

    @abstractmethod
    def consumer_slots(self, headers: HeaderRows) -> Sequence[SlotView | DeviceSlot]:
        """In the consumer: one readable view per slot."""

    @abstractmethod
    def flush(self, index: int) -> None:
        """In the producer: returns when slot ``index`` lies in the storage as written."""

    @abstractmethod
    def finish_reads(self) -> None:
        """In the consumer: returns when reads of slots issued so far are done."""

    @abstractmethod
    def mark_cut(self, index: int) -> None:
        """In the consumer, with no producer alive: the next slot does not continue slot ``index``.

        Sets ``cut`` in every row but those that ended: they are complete without what follows.
        """

    @abstractmethod
    def message(self) -> SlotMessage:
        """In the consumer: how the producer opens the storage."""

    @abstractmethod
    def accept(self, message: SlotMessage) -> None:
        """In the producer: open the storage by the consumer's message.

        Raises:
            TransportError: the message is of another kind of storage.
        """

    @abstractmethod
    def prefault(self) -> None:
        """Take the memory now, in the process that is bound where it shall lie."""

    @abstractmethod
    def close(self) -> None:
        """Give up this process's hold."""

    def expect_kind(self, message: SlotMessage) -> None:
        """Refuse a message of another kind of storage."""
        if message.kind != self.kind:
            raise TransportError(
                f"slots were delivered in {message.kind} memory, this ring's are in {self.kind}"
            )


class HostStorage(SlotStorage):
    """Payloads in shared host memory; both sides' views lie on the same bytes, so nothing is copied."""

    kind = "host"

    def __init__(self) -> None:
        self._layout: SlotLayout | None = None
        self._capacity = 0
        self._block: SharedBlock | None = None
        self._slots: list[SlotView] = []

    def create(self, layout: SlotLayout, capacity: int, label: str) -> None:
        if self._block is not None:
            raise ValueError("a storage belongs to one ring; make another")
        self._layout = layout
        self._capacity = capacity
        self._block = SharedBlock.create(capacity * layout.nbytes, f"{label} slots")

    def _views(self, headers: HeaderRows) -> list[SlotView]:
        assert self._block is not None, "storage was not created by a ring"
        assert self._layout is not None
        if not self._slots:
            payloads = self._block.ndarray(np.uint8, (self._capacity, self._layout.nbytes))
            self._slots = [SlotView(self._layout, headers[i], payloads[i]) for i in range(self._capacity)]
        return self._slots

    def producer_slots(self, headers: HeaderRows) -> Sequence[SlotView]:
        return self._views(headers)

    def consumer_slots(self, headers: HeaderRows) -> Sequence[SlotView]:
        return self._views(headers)

    def flush(self, index: int) -> None:
        pass

    def finish_reads(self) -> None:
        pass

    def mark_cut(self, index: int) -> None:
        slot = self._slots[index]
        slot.cut[(slot.terminated | slot.truncated) == 0] = 1

    def message(self) -> SlotMessage:
        return SlotMessage(self.kind, b"")

    def accept(self, message: SlotMessage) -> None:
        self.expect_kind(message)

    def prefault(self) -> None:
        assert self._block is not None, "storage was not created by a ring"
        self._block.prefault()

    def close(self) -> None:
        self._slots = []
        if self._block is not None:
            self._block.close()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_slots": []}
