"""The nursery of `test_ring_kill`: forks producers, has them killed, recovers, and checks everything."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from tests.transport.conftest import tokens
from tests.transport.procs_transport import LAYOUT, check, delays, fill, hold_and_step
from transport import PipeWriter, Ring, RingConsumer, RingProducer, SlotView, StopSignal

STEPS = ("_take_token", "_open", "_flush", "_count", "_post", "write")
CALLS = 6


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DoomedProducer(RingProducer):
    """Is killed before or after the ``call``-th time it does ``step``."""

    def __init__(self, ring: Ring, incarnation: int, step: str, call: int, before: bool) -> None:
        super().__init__(ring, incarnation)
        self._left = call
        if step != "write":
            original: Callable[..., object] = getattr(self, step)

            def doomed(*args: object) -> object:
                self._left -= 1
                if self._left == 0 and before:
                    die()
                result = original(*args)
                if self._left == 0:
                    die()
                return result

            setattr(self, step, doomed)
        else:
            self._doom_write = True

    def write(self, slot: SlotView) -> None:
        """Fill a slot, or half of it."""
        self._left -= hasattr(self, "_doom_write")
        if self._left == 0 and hasattr(self, "_doom_write"):
            slot.obs.fill(3.0)
            die()
        fill(slot, slot.generation)


def _doomed_life(ring: Ring, incarnation: int, step: str, call: int, before: bool) -> None:
    producer = DoomedProducer(ring, incarnation, step, call, before)
    current = producer.reserve(None, 10)
    while current is not None:
        following = producer.reserve(None, 10)
        producer.write(current)
        if following is not None:
            following.obs.fill(0.5)
        producer.commit()
        current = following


def fork(life: Callable[[], None]) -> int:
    """Run ``life`` in a child that never returns."""
    pid = os.fork()
    if pid == 0:
        try:
            life()
        finally:
            os._exit(3)
    return pid


class Ward:
    """Consumer and supervisor of one ring; every check of recovery is here."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.consumer: RingConsumer = ring.consumer()
        self.free_fd = ring.parts().free.fileno()
        self.generation = ring.start_generation
        self.cut: set[int] = set()
        self.first: dict[int, int] = {}
        self.held = 0

    def take(self, timeout_s: float) -> bool:
        slot = self.consumer.wait(None, timeout_s)
        if slot is None:
            return False
        assert isinstance(slot, SlotView)
        check(slot, self.generation, last_of_dead=self.generation in self.cut)
        self.first.setdefault(slot.incarnation, self.generation)
        assert slot.incarnation == max(self.first), "an older incarnation after a newer one"
        self.generation += 1
        self.held += 1
        return True

    def release(self) -> None:
        self.consumer.release(self.held)
        self.held = 0

    def bury(self, pid: int) -> int:
        """Reap, recover, and check the token counts; returns the successor's first generation."""
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"the producer ended by itself: {status}"
        committed, released = self.ring.committed, self.ring.released
        found = self.consumer.recover()
        assert found.next_generation == committed
        assert tokens(self.consumer.filled_fd) == committed - self.generation
        assert tokens(self.free_fd) == self.ring.capacity - (committed - released)
        if found.in_ring:
            assert found.last_generation == committed - 1 >= released
            self.cut.add(committed - 1)
        return committed


def kill_at_step(*, report: PipeWriter, step: str) -> None:
    """Kill one producer before and after each of the first `CALLS` calls of ``step``."""
    ward = Ward(Ring.create(LAYOUT, 4, start_generation=2, poison=True))
    lives = 0
    for call in range(1, CALLS + 1):
        for before in (True, False):
            lives += 1
            pid = fork(
                lambda call=call, before=before, life=lives: _doomed_life(ward.ring, life, step, call, before)
            )
            while ward.take(0.01) or not _is_dead(pid):
                if ward.held == 2 or lives % 3:
                    ward.release()
            ward.bury(pid)
            if lives % 2:
                ward.release()  # else the slots in hand outlive their producer
            while ward.take(0):
                pass
            ward.release()
            assert ward.generation == ward.ring.committed == ward.ring.released
    _final_life(ward, lives + 1)
    report.send(lives, 1.0)


def kill_at_random(*, report: PipeWriter, kills: int, seed: int) -> None:
    """Kill ``kills`` producers, each at a random moment of its life, while the consumer goes on."""
    ward = Ward(Ring.create(LAYOUT, 4, poison=True))
    rng = random.Random(seed)
    stop = StopSignal()
    empty_lives = 0
    for incarnation in range(kills):
        probability = rng.choice([0.0, 0.2])
        first = ward.ring.committed

        def life(incarnation: int = incarnation, probability: float = probability) -> None:
            hold_and_step(ward.ring.producer(incarnation), None, stop, delays(incarnation, probability, 5e-4))

        pid = fork(life)
        end = time.monotonic() + rng.random() * 0.012
        while time.monotonic() < end:
            if ward.take(0.0005) and rng.random() < 0.8:
                ward.release()
            if ward.held == 2:
                ward.release()
        os.kill(pid, signal.SIGKILL)
        empty_lives += ward.bury(pid) == first
    while ward.take(0):
        pass
    ward.release()
    _final_life(ward, kills)
    report.send((kills, ward.generation, empty_lives), 1.0)


def _final_life(ward: Ward, incarnation: int) -> None:
    """No credit was lost: a last producer fills the ring to its capacity, and no further."""
    producer = ward.ring.producer(incarnation)
    for _ in range(ward.ring.capacity):
        slot = producer.reserve(None, 0)
        assert slot is not None
        fill(slot, slot.generation)
        producer.commit()
    assert producer.reserve(None, 0) is None
    while ward.take(0):
        pass
    assert ward.generation == ward.ring.committed


def _is_dead(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
