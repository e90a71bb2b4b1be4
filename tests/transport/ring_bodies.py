"""Ring tests that hold for every storage; run with host memory here and with device memory in tests/gpu."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.transport.procs_transport import LAYOUT, check, ended, fill, produce
from transport import Ring, SlotStorage, StartupHandshake, StopSignal

StorageFactory = Callable[[], SlotStorage]


def every_slot_arrives_once_in_order(
    spawn, stop: StopSignal, storage: SlotStorage, slots: int, delay: float
) -> None:
    """R1, R6: another process produces; every slot is compared byte for byte."""
    from tests.transport.procs_transport import delays

    ring = Ring.create(LAYOUT, 4, storage=storage, start_generation=11)
    handshake = StartupHandshake.create(["collector"], ["collector"])
    process = spawn(
        produce, ring=ring, stop=stop, slots=slots, delay=delay, handshake=handshake.for_worker(["collector"])
    )
    consumer = ring.consumer()
    handshake.deliver("collector", 0, consumer.message())
    pause = delays(5, delay, 1e-3)
    held = 0
    for generation in range(11, 11 + slots):
        slot = consumer.wait(stop, 30)
        assert slot is not None
        check(slot, generation)
        held += 1
        next(pause)
        if held >= 1 + generation % 2:  # sometimes two slots are held
            consumer.release(held)
            held = 0
    consumer.release(held)
    process.join(30)
    assert process.exitcode == 0
    assert consumer.take() is None
    assert ring.committed == ring.released == 11 + slots
    ring.close()
    handshake.close()


def full_and_empty(storage: SlotStorage) -> None:
    """R3: a full ring stops its producer, an empty one its consumer, at exactly the capacity."""
    ring = Ring.create(LAYOUT, 3, storage=storage)
    consumer = ring.consumer()
    producer = ring.producer(0, consumer.message())
    assert consumer.take() is None
    for generation in range(3):
        slot = producer.reserve(None, 0)
        assert slot is not None
        assert slot.generation == generation
        fill(slot, generation)
        producer.commit()
    assert producer.reserve(None, 0) is None
    first = consumer.take()
    assert first is not None
    assert producer.reserve(None, 0) is None  # taken is not released
    check(first, 0)
    consumer.release()
    assert producer.reserve(None, 0) is not None
    ring.close()


def recovery(storage: SlotStorage, tokens: Callable[[int], int], *, taken: int, released: int) -> None:
    """R2: tokens come back from the counters, the last slot is cut where it still is, a successor goes on."""
    start, last = 6, 8
    assert set(ended(last)) == {True, False}  # rows that ended are complete and stay uncut
    ring = Ring.create(LAYOUT, 4, storage=storage, start_generation=start)
    consumer = ring.consumer()
    producer = ring.producer(0, consumer.message())
    for generation in range(start, last + 1):
        slot = producer.reserve(None, 0)
        assert slot is not None
        fill(slot, generation)
        producer.commit()
    torn = producer.reserve(None, 0)  # its token is lost with the producer
    assert torn is not None
    torn.obs.fill(-1)
    for _ in range(taken):
        assert consumer.take() is not None
    consumer.release(released)

    found = consumer.recover()
    assert (found.next_generation, found.last_generation) == (last + 1, last)
    assert found.in_ring == (released < 3)
    assert found.taken == (taken == 3)
    assert tokens(consumer.filled_fd) == 3 - taken
    assert tokens(producer.free_fd) == 4 - (3 - released)

    successor = ring.producer(1, consumer.message())
    slot = successor.reserve(None, 0)
    assert slot is not None
    assert (slot.generation, slot.incarnation) == (last + 1, 1)
    fill(slot, last + 1)
    successor.commit()
    for generation in range(start + taken, last + 2):
        arrived = consumer.take()
        assert arrived is not None
        assert arrived.incarnation == (generation == last + 1)
        check(arrived, generation, last_of_dead=generation == last)
    ring.close()


RECOVERY_CASES = pytest.mark.parametrize(("taken", "released"), [(0, 0), (1, 0), (2, 1), (3, 2), (3, 3)])
