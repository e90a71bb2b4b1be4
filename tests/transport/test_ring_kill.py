"""SIGKILL of the producer: at every step of its protocol, and at random moments, many times.

A process forked from a small spawned one (the nursery) is quick to start, so hundreds of lives fit into
seconds. The nursery is consumer and supervisor at once: it kills, reaps, recovers, starts the successor, and
checks every slot byte for byte.
"""

from __future__ import annotations

import pytest

from tests.transport import procs_kill
from transport import message_pipe

pytestmark = pytest.mark.fault


def run_nursery(spawn, target, **kwargs) -> object:
    reader, writer = message_pipe()
    process = spawn(target, report=writer, **kwargs)
    writer.close()
    process.join(100)
    messages = reader.drain()
    reader.close()
    assert process.exitcode == 0, messages
    return messages[-1]


@pytest.mark.covers("R2")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", procs_kill.STEPS)
def test_killed_between_any_two_steps(spawn, step) -> None:
    lives = run_nursery(spawn, procs_kill.kill_at_step, step=step)
    assert lives == 2 * procs_kill.CALLS


@pytest.mark.covers("R2")
@pytest.mark.timeout(120)
def test_killed_at_random_moments(spawn) -> None:
    kills, slots, empty_lives = run_nursery(spawn, procs_kill.kill_at_random, kills=400, seed=3)
    print(f"{kills} kills, {slots} slots, {empty_lives} lives without a slot")
    assert kills == 400
    assert slots > 400


@pytest.mark.covers("R2")
@pytest.mark.timeout(120)
def test_killed_spawned_producers(spawn, stop, tokens) -> None:
    """The same with processes started as a run starts them."""
    import random
    import time

    from tests.transport.procs_transport import LAYOUT, check, produce
    from transport import Ring

    ring = Ring.create(LAYOUT, 4, poison=True)
    consumer = ring.consumer()
    rng = random.Random(11)
    generation, dead = 0, set()
    for incarnation in range(8):
        process = spawn(produce, ring=ring, stop=stop, incarnation=incarnation, delay=0.05, seed=incarnation)
        end = None
        while end is None or time.monotonic() < end:
            slot = consumer.wait(stop, 0.01)
            if slot is None:
                continue
            end = end or time.monotonic() + rng.random() * 0.05
            check(slot, generation, last_of_dead=generation in dead)
            assert slot.incarnation <= incarnation
            consumer.release()
            generation += 1
        process.kill()
        process.join()
        found = consumer.recover()
        assert tokens(consumer.filled_fd) == ring.committed - generation
        assert found.next_generation == ring.committed
        if found.in_ring:
            dead.add(found.last_generation)
    ring.close()
