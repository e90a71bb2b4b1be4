"""How fast a ring moves slots between two processes, next to a plain copy of the same bytes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import SlotLayout
from transport.memory import SharedBlock
from transport.process import set_parent_death_signal
from transport.ring import Ring
from transport.slot import SlotView
from transport.wakeup import StopSignal

_OBS_DIM = 64
_ACTION_DIM = 16
_WAIT_S = 30.0
_LATENCY_INTERVAL_S = 5e-4

_WRITE, _HAND_OVER, _PACED = range(3)
"""What the producer does with a slot: rewrite every byte; nothing; rewrite it after a pause."""

Arrays = list[NDArray[np.generic]]


def ring_throughput(slot_bytes: int, seconds: float, capacity: int = 4) -> dict[str, float]:
    """Measure a ring in host memory.

    The producer process writes each slot in place, this process copies each slot out once. That is done twice:
    with every byte rewritten for each slot, where the pace is often that of cache lines changing cores, which
    any two processes pay; and with slots handed over as they are, which leaves the ring's own cost. The plain
    copy moves the same arrays within this process, from as many buffers, just before and just after. Then the
    producer slows down, and the time from a commit to the slot being in hand is measured.

    Args:
        slot_bytes: bytes written and copied per slot, about (a whole number of environments).
        seconds: time for each of the four parts.
        capacity: slots of the ring. Once they exceed the processor's cache, plain copy and ring meet.

    Returns:
        ``slot_bytes`` as moved, ``slots`` (rewritten ones); ``ring_gb_s`` with rewritten slots,
        ``handover_gb_s`` without, ``copy_gb_s`` (1e9 bytes a second); ``ratio`` and ``handover_ratio`` to the
        plain copy; ``latency_p50_us``, ``latency_p99_us``, ``latency_max_us``.

    Raises:
        TransportError: the producer process failed.
    """
    layout = _layout(slot_bytes)
    ring = Ring.create(layout, capacity)
    stop = StopSignal()
    board = SharedBlock.create((1 + capacity) * 8, "bench mode and time stamps")
    process = multiprocessing.get_context("spawn").Process(
        target=_produce,
        kwargs={"ring": ring, "board": board, "stop": stop, "parent": os.getpid()},
        daemon=True,
    )
    process.start()
    try:
        result = _measure(ring, board, seconds)
    finally:
        stop.set()
        process.join(_WAIT_S)
        process.kill()
        process.join()
    for resource in (ring, stop, board):
        resource.close()
    return result


def _layout(slot_bytes: int) -> SlotLayout:
    one = SlotLayout.for_shard(1, _OBS_DIM, _ACTION_DIM)
    per_env = sum(field.nbytes for field in one.fields if field.offset < one.final_offset)
    return SlotLayout.for_shard(max(1, round(slot_bytes / per_env)), _OBS_DIM, _ACTION_DIM)


def _arrays(slot: SlotView) -> Arrays:
    """What a step without ended episodes writes."""
    return [slot.obs, slot.action, slot.reward, slot.terminated, slot.truncated, slot.cut]


def _copy(target: Arrays, source: Arrays) -> None:
    for to, of in zip(target, source, strict=True):
        np.copyto(to, of)


def _measure(ring: Ring, board: SharedBlock, seconds: float) -> dict[str, float]:
    consumer = ring.consumer()
    words = board.ndarray(np.int64, 1 + ring.capacity)

    def take() -> SlotView:
        slot = consumer.wait(None, _WAIT_S)
        if not isinstance(slot, SlotView):
            raise TransportError("the bench's producer process gave no slot")
        return slot

    def switch(mode: int) -> None:
        words[0] = mode
        for _ in range(ring.capacity + 2):  # slots of the mode before, held and queued
            take()
            consumer.release()

    def slots_per_s() -> float:
        slots, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds:
            _copy(target, _arrays(take()))
            consumer.release()
            slots += 1
        return slots / spent

    target = [array.copy() for array in _arrays(take())]
    consumer.release()
    moved = sum(array.nbytes for array in target)
    sources = [[array.copy() for array in target] for _ in range(ring.capacity)]

    plain = _plain_copies(target, sources, seconds / 2)
    switch(_WRITE)
    written = slots_per_s()
    switch(_HAND_OVER)
    handed = slots_per_s()
    plain = (plain + _plain_copies(target, sources, seconds / 2)) / 2
    switch(_PACED)
    latencies: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or not latencies:
        generation = take().generation
        latencies.append((time.monotonic_ns() - int(words[1 + generation % ring.capacity])) / 1e3)
        consumer.release()
    p50, p99, worst = np.percentile(latencies, [50, 99, 100])
    return {
        "slot_bytes": float(moved),
        "slots": written * seconds,
        "ring_gb_s": written * moved / 1e9,
        "handover_gb_s": handed * moved / 1e9,
        "copy_gb_s": plain * moved / 1e9,
        "ratio": written / plain,
        "handover_ratio": handed / plain,
        "latency_p50_us": float(p50),
        "latency_p99_us": float(p99),
        "latency_max_us": float(worst),
    }


def _plain_copies(target: Arrays, sources: list[Arrays], seconds: float) -> float:
    """Copies a second, out of as many buffers as the ring has."""
    begin = time.perf_counter()
    for copies, source in enumerate(itertools.cycle(sources), start=1):
        _copy(target, source)
        if (spent := time.perf_counter() - begin) >= seconds:
            return copies / spent
    raise AssertionError("unreachable")


def _produce(*, ring: Ring, board: SharedBlock, stop: StopSignal, parent: int) -> None:
    """The bench's producer process."""
    set_parent_death_signal(parent)
    ring.prefault()
    producer = ring.producer()
    words = board.ndarray(np.int64, 1 + ring.capacity)
    while (slot := producer.reserve(stop)) is not None and not stop.is_set():
        mode = int(words[0])
        if mode == _PACED:
            time.sleep(_LATENCY_INTERVAL_S)
        if mode != _HAND_OVER:
            for array in _arrays(slot):
                array.fill(1)
        words[1 + slot.generation % ring.capacity] = time.monotonic_ns()
        producer.commit()
