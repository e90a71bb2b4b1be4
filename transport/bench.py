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
_CAPACITY = 4
_WAIT_S = 30.0
_LATENCY_INTERVAL_S = 5e-4

Arrays = list[NDArray[np.generic]]


def ring_throughput(slot_bytes: int, seconds: float) -> dict[str, float]:
    """Measure a ring in host memory.

    The producer process writes each slot in place, this process copies each slot out once; the plain copy
    moves the same arrays within this process, just before and just after. Then the producer slows down, and
    the time from a commit to the slot being in hand is measured.

    Args:
        slot_bytes: bytes written and copied per slot, about (a whole number of environments).
        seconds: time for each of the three parts.

    Returns:
        ``slot_bytes`` as moved, ``slots``, ``ring_gb_s``, ``copy_gb_s`` (1e9 bytes a second), ``ratio`` of
        the two, ``latency_p50_us``, ``latency_p99_us``, ``latency_max_us``.

    Raises:
        TransportError: the producer process failed.
    """
    layout = _layout(slot_bytes)
    ring = Ring.create(layout, _CAPACITY)
    stop, slow = StopSignal(), StopSignal("bench pace")
    stamps = SharedBlock.create(_CAPACITY * 8, "bench time stamps")
    process = multiprocessing.get_context("spawn").Process(
        target=_produce,
        kwargs={"ring": ring, "stamps": stamps, "stop": stop, "slow": slow, "parent": os.getpid()},
        daemon=True,
    )
    process.start()
    try:
        result = _measure(ring, layout, stamps, slow, seconds)
    finally:
        stop.set()
        process.join(_WAIT_S)
        process.kill()
        process.join()
    for resource in (ring, stop, slow, stamps):
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


def _measure(
    ring: Ring, layout: SlotLayout, stamps: SharedBlock, slow: StopSignal, seconds: float
) -> dict[str, float]:
    consumer = ring.consumer()
    stamp = stamps.ndarray(np.int64, _CAPACITY)

    def take() -> SlotView:
        slot = consumer.wait(None, _WAIT_S)
        if not isinstance(slot, SlotView):
            raise TransportError("the bench's producer process gave no slot")
        return slot

    target = [array.copy() for array in _arrays(take())]
    consumer.release()
    moved = sum(array.nbytes for array in target)
    sources = [[array.copy() for array in target] for _ in range(_CAPACITY)]

    plain = [_plain_copies(target, sources, seconds / 2)]
    slots, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        _copy(target, _arrays(take()))
        consumer.release()
        slots += 1
    plain.append(_plain_copies(target, sources, seconds / 2))

    slow.set()
    latencies: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(latencies) <= _CAPACITY:
        generation = take().generation
        latencies.append((time.monotonic_ns() - int(stamp[generation % _CAPACITY])) / 1e3)
        consumer.release()
    p50, p99, worst = np.percentile(latencies[_CAPACITY:], [50, 99, 100])  # the first were queued
    ring_rate, copy_rate = slots * moved / spent / 1e9, float(np.mean(plain)) * moved / 1e9
    return {
        "slot_bytes": float(moved),
        "slots": float(slots),
        "ring_gb_s": ring_rate,
        "copy_gb_s": copy_rate,
        "ratio": ring_rate / copy_rate,
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


def _produce(*, ring: Ring, stamps: SharedBlock, stop: StopSignal, slow: StopSignal, parent: int) -> None:
    """The bench's producer process: writes every slot whole, as fast as it can, then one at a time."""
    set_parent_death_signal(parent)
    ring.prefault()
    producer = ring.producer()
    stamp = stamps.ndarray(np.int64, _CAPACITY)
    paced = False
    while (slot := producer.reserve(stop)) is not None and not stop.is_set():
        for array in _arrays(slot):
            array.fill(1)
        paced = paced or (slot.generation % 16 == 0 and slow.is_set())
        if paced:
            time.sleep(_LATENCY_INTERVAL_S)
        stamp[slot.generation % _CAPACITY] = time.monotonic_ns()
        producer.commit()
