"""The ring's tests with slots in device memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.marks import NEEDS_GPU
from tests.transport import ring_bodies
from tests.transport.conftest import spawn, stop, tokens
from transport import DeviceStorage, sweep_torch_shm

__all__ = ["spawn", "stop"]


pytestmark = NEEDS_GPU


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Children only: CUDA opens descriptors for good whenever it likes."""
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture
def storage() -> DeviceStorage:
    return DeviceStorage("cuda:0")


@pytest.mark.covers("R1", "R6")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("slots", "delay"), [(20_000, 0.0), (3_000, 0.02)], ids=["full-speed", "delays"])
def test_slots_arrive_once_in_order_and_whole(spawn, stop, storage, slots, delay) -> None:
    ring_bodies.every_slot_arrives_once_in_order(spawn, stop, storage, slots, delay)


@pytest.mark.covers("R5", "R6")
@pytest.mark.timeout(120)
def test_killed_producer_leaves_a_file_that_the_sweep_removes(spawn, stop, storage) -> None:
    from tests.transport.procs_transport import LAYOUT, check, produce
    from transport import Ring, StartupHandshake

    ring = Ring.create(LAYOUT, 4, storage=storage)
    consumer = ring.consumer()
    generation = 0
    cut = None
    handshake = StartupHandshake.create(["collector"], ["collector"])
    for incarnation in range(3):
        process = spawn(produce, ring=ring, stop=stop, incarnation=incarnation, handshake=handshake)
        handshake.deliver("collector", incarnation, consumer.message())
        for _ in range(50):
            slot = consumer.wait(stop, 60)
            assert slot is not None
            check(slot, generation, last_of_dead=generation == cut)
            consumer.release()
            generation += 1
        process.kill()
        process.join()
        found = consumer.recover()
        assert found.next_generation == ring.committed
        assert tokens(consumer.filled_fd) == ring.committed - generation
        cut = found.last_generation if found.in_ring else None
        sweep_torch_shm([process.pid])
        assert not list(Path("/dev/shm").glob(f"torch_{process.pid}_*"))
    ring.close()
    handshake.close()


@ring_bodies.RECOVERY_CASES
@pytest.mark.covers("R2", "R6")
def test_recovery_rebuilds_tokens_and_cuts_the_last_row(storage, taken, released) -> None:
    ring_bodies.recovery(storage, tokens, taken=taken, released=released)


@pytest.mark.covers("R3", "R6")
def test_capacity_is_the_bound(storage) -> None:
    ring_bodies.full_and_empty(storage)
