"""Slots in CUDA memory, shared over CUDA IPC by torch's own means.

The consumer allocates the slots once and sends their handle; the producer writes pinned host arrays and
copies each slot as it commits it. Headers and counters stay in the ring's shared host memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from transport.errors import TransportError
from transport.layout import SlotLayout
from transport.slot import DeviceSlot, SlotView
from transport.storage import HeaderRows, SlotMessage, SlotStorage


class DeviceStorage(SlotStorage):
    """Payloads in the memory of ``device``.

    ``device="cpu"`` serves one process that holds both ends, so that this class runs without a GPU.
    """

    kind = "cuda"

    def __init__(self, device: str) -> None:
        self.device = device
        self._layout: SlotLayout | None = None
        self._capacity = 0
        self._on_gpu = device.startswith("cuda")
        self._reset()

    def _reset(self) -> None:
        # Any: torch is imported by the workers that use a device, never by the parent that passes this on.
        self._slots: Any = None
        self._staging: Any = None
        self._copied: Any = None
        self._views: list[SlotView] = []

    def create(self, layout: SlotLayout, capacity: int, label: str) -> None:
        if self._layout is not None:
            raise ValueError("a storage belongs to one ring; make another")
        self._layout = layout
        self._capacity = capacity

    def _layout_or_fail(self) -> SlotLayout:
        assert self._layout is not None, "storage was not created by a ring"
        return self._layout

    def consumer_slots(self, headers: HeaderRows) -> Sequence[DeviceSlot]:
        torch: Any = import_module("torch")
        layout = self._layout_or_fail()
        self._slots = torch.zeros((self._capacity, layout.nbytes), dtype=torch.uint8, device=self.device)
        self.finish_reads()  # the zeroes must not overtake the producer's first copy
        slots: list[DeviceSlot] = []
        for index in range(self._capacity):
            fields: dict[str, Any] = {}
            for field in layout.fields:
                raw = self._slots[index, field.offset : field.offset + field.nbytes]
                fields[field.name] = raw.view(getattr(torch, field.dtype.name)).view(field.shape)
            slots.append(DeviceSlot(layout, headers[index], fields))
        return slots

    def producer_slots(self, headers: HeaderRows) -> Sequence[SlotView]:
        if self._slots is None:
            raise TransportError("slots in device memory must be delivered before the producer opens them")
        torch: Any = import_module("torch")
        layout = self._layout_or_fail()
        # One staging row a slot, though two are in use at a time: a view then belongs to one slot for good.
        self._staging = torch.zeros(
            (self._capacity, layout.nbytes), dtype=torch.uint8, pin_memory=self._on_gpu
        )
        if self._on_gpu:
            self._copied = torch.cuda.Event()
        rows = self._staging.numpy()
        self._views = [SlotView(layout, headers[i], rows[i]) for i in range(self._capacity)]
        return self._views

    def flush(self, index: int) -> None:
        layout = self._layout_or_fail()
        nbytes = layout.nbytes if self._views[index].num_final else layout.final_offset
        self._slots[index, :nbytes].copy_(self._staging[index, :nbytes], non_blocking=True)
        if self._on_gpu:
            torch: Any = import_module("torch")
            self._copied.record(torch.cuda.current_stream(self._slots.device))
            self._copied.synchronize()

    def finish_reads(self) -> None:
        if self._on_gpu:
            torch: Any = import_module("torch")
            torch.cuda.current_stream(self._slots.device).synchronize()

    def mark_cut(self, index: int) -> None:
        cut, terminated, truncated = (self._flags(index, name) for name in ("cut", "terminated", "truncated"))
        cut.masked_fill_((terminated | truncated) == 0, 1)
        self.finish_reads()

    def _flags(self, index: int, name: str) -> Any:
        """A field of bytes in a slot, as the consumer's tensor [E]."""
        field = self._layout_or_fail().field(name)
        return self._slots[index, field.offset : field.offset + field.nbytes]

    def message(self) -> SlotMessage:
        if not self._on_gpu:
            return SlotMessage(self.kind, b"")
        reductions: Any = import_module("torch.multiprocessing.reductions")
        # Each message counts as one more holder of the memory, so every incarnation gets one of its own.
        return SlotMessage(self.kind, pickle.dumps(reductions.reduce_tensor(self._slots)))

    def accept(self, message: SlotMessage) -> None:
        self.expect_kind(message)
        if message.handles:
            rebuild, arguments = pickle.loads(message.handles)
            self._slots = rebuild(*arguments)

    def prefault(self) -> None:
        """Device memory is taken when the consumer opens it."""

    def close(self) -> None:
        self._reset()

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_slots": None,
            "_staging": None,
            "_copied": None,
            "_views": [],
        }
