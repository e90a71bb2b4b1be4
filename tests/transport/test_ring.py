"""The ring between two living processes, on every storage that runs here."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from tests.transport import ring_bodies
from tests.transport.procs_transport import LAYOUT, check, fill, reserve_then_sleep
from transport import DeviceStorage, HostStorage, Ring, TransportError, wait_any

# The device's own code on CPU tensors: one process holds both ends.
STORAGES = pytest.mark.parametrize(
    "storage", [HostStorage, lambda: DeviceStorage("cpu")], ids=["host", "device-code-on-cpu"]
)


@pytest.mark.covers("R1")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("slots", "delay"), [(40_000, 0.0), (10_000, 0.02)], ids=["full-speed", "delays"])
def test_slots_arrive_once_in_order_and_whole(spawn, stop, slots, delay) -> None:
    ring_bodies.every_slot_arrives_once_in_order(spawn, stop, HostStorage(), slots, delay)


@pytest.mark.slow
@pytest.mark.covers("R1")
@pytest.mark.timeout(1200)
def test_millions_of_slots(spawn, stop) -> None:
    ring_bodies.every_slot_arrives_once_in_order(spawn, stop, HostStorage(), 3_000_000, 1e-4)


@STORAGES
@pytest.mark.covers("R3", "R6")
def test_capacity_is_the_bound(storage) -> None:
    ring_bodies.full_and_empty(storage())


@STORAGES
@ring_bodies.RECOVERY_CASES
@pytest.mark.covers("R2", "R6")
def test_recovery_rebuilds_tokens_and_cuts_the_last_row(storage, tokens, taken, released) -> None:
    ring_bodies.recovery(storage(), tokens, taken=taken, released=released)


@pytest.mark.covers("R2")
def test_recovery_before_any_commit_and_twice(tokens) -> None:
    ring = Ring.create(LAYOUT, 3, start_generation=4)
    consumer, producer = ring.consumer(), ring.producer()
    producer.reserve(None, 0)
    for _ in range(2):
        found = consumer.recover()
        assert (found.next_generation, found.last_generation, found.in_ring, found.taken) == (
            4,
            None,
            False,
            False,
        )
        assert (tokens(consumer.filled_fd), tokens(producer.free_fd)) == (0, 3)


@pytest.mark.covers("R3")
@pytest.mark.timeout(30)
def test_waiting_costs_no_cpu(stop) -> None:
    ring = Ring.create(LAYOUT, 3)
    consumer, producer = ring.consumer(), ring.producer()
    for wait in (lambda: consumer.wait(stop, 1.0), lambda: producer.reserve(stop, 1.0)):
        wall, cpu = time.monotonic(), time.thread_time()
        assert wait() is None
        wall, cpu = time.monotonic() - wall, time.thread_time() - cpu
        assert wall >= 1.0
        assert cpu < 0.02 * wall
        for generation in range(3):  # now full
            slot = producer.reserve(None, 0)
            if slot is not None:
                fill(slot, generation)
                producer.commit()


@pytest.mark.covers("R3")
@pytest.mark.timeout(30)
def test_stop_ends_both_waits(stop) -> None:
    ring = Ring.create(LAYOUT, 3)
    consumer, producer = ring.consumer(), ring.producer()
    for _ in range(2):
        assert producer.reserve(None, 0) is not None
    producer.commit()
    assert producer.reserve(None, 0) is not None
    producer.commit()
    consumer.take(), consumer.take()
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    assert consumer.wait(stop, 20) is None
    assert producer.reserve(stop, 20) is None
    timer.join()


@pytest.mark.covers("R9")
def test_poisoned_ring_finds_what_was_not_written() -> None:
    ring = Ring.create(LAYOUT, 3, poison=True)
    consumer, producer = ring.consumer(), ring.producer()
    for forgotten in ("obs", "critic_obs", "reward", "truncated", "cut", "num_final", None):
        slot = producer.reserve(None, 0)
        assert slot is not None
        before = None if forgotten in (None, "num_final") else getattr(slot, forgotten).copy()
        fill(slot, slot.generation)
        if before is not None:
            getattr(slot, forgotten)[-1] = before[-1]  # one row was left out
        elif forgotten == "num_final":
            slot.num_final = -1
        producer.commit()
        if forgotten is None:
            assert consumer.take() is not None
        else:
            with pytest.raises(TransportError, match=f"never written: .*{forgotten}"):
                consumer.take()
            consumer._taken += 1
        consumer.release()


@pytest.mark.covers("R9")
def test_poisoned_ring_spoils_views_kept_beyond_release() -> None:
    ring = Ring.create(LAYOUT, 3, poison=True)
    consumer, producer = ring.consumer(), ring.producer()
    slot = producer.reserve(None, 0)
    assert slot is not None
    fill(slot, 0)
    producer.commit()
    taken = consumer.take()
    assert taken is not None
    consumer.release()
    assert np.isnan(taken.obs).all()
    with pytest.raises(TransportError):
        taken.check_written()


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        Ring.create(LAYOUT, 2)
    storage = HostStorage()
    ring = Ring.create(LAYOUT, 3, storage=storage)
    with pytest.raises(ValueError, match="one ring"):
        Ring.create(LAYOUT, 3, storage=storage)
    producer = ring.producer()
    with pytest.raises(AssertionError):
        producer.commit()
    producer.reserve(), producer.reserve()
    with pytest.raises(AssertionError):
        producer.reserve()
    with pytest.raises(AssertionError):
        ring.consumer().release()
    device = DeviceStorage("cpu")
    other = Ring.create(LAYOUT, 3, storage=device)
    with pytest.raises(TransportError, match="delivered before"):
        other.producer()
    with pytest.raises(TransportError, match="host"):
        other.producer(0, ring.consumer().message())


def test_release_waits_for_the_readers_event() -> None:
    class Event:
        seen = -1

        def synchronize(self) -> None:
            self.seen = ring.released

    ring = Ring.create(LAYOUT, 3)
    consumer, producer = ring.consumer(), ring.producer()
    slot = producer.reserve()
    assert slot is not None
    producer.commit()
    consumer.take()
    event = Event()
    consumer.release(after=event)
    assert (event.seen, ring.released) == (0, 1)


@pytest.mark.covers("R2")
def test_slot_lies_in_its_storage_before_it_counts() -> None:
    class Watched(HostStorage):
        flushed: ClassVar[list[tuple[int, int]]] = []

        def flush(self, index: int) -> None:
            self.flushed.append((index, ring.committed))

    ring = Ring.create(LAYOUT, 3, storage=Watched())
    producer = ring.producer()
    for _ in range(3):
        producer.reserve(None, 0)
        producer.commit()
    assert Watched.flushed == [(0, 0), (1, 1), (2, 2)]


def test_tensors_lie_on_the_slot() -> None:
    ring = Ring.create(LAYOUT, 3)
    consumer, producer = ring.consumer(), ring.producer()
    slot = producer.reserve()
    assert slot is not None
    fill(slot, 0)
    producer.commit()
    taken = consumer.take()
    assert taken is not None
    tensor = taken.tensor("terminated")
    assert tensor.data_ptr() == taken.terminated.ctypes.data
    with pytest.raises(KeyError, match="no field 'next_obs'"):
        taken.tensor("next_obs")
    check(taken, 0)


@pytest.mark.covers("R2", "R5")
@pytest.mark.timeout(60)
def test_tokens_a_killed_process_held_come_back(spawn, stop, tokens) -> None:
    from transport import StopSignal

    started = StopSignal()
    ring = Ring.create(LAYOUT, 3)
    consumer = ring.consumer()
    process = spawn(reserve_then_sleep, ring=ring, started=started)
    assert wait_any([started], stop, 30)
    process.kill()
    process.join()
    successor = ring.producer(1)
    assert tokens(successor.free_fd) == 1
    consumer.recover()
    assert tokens(successor.free_fd) == 3
    ring.close()
    started.close()
