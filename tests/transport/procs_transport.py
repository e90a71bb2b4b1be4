"""What the transport tests' child processes run, and the slot contents both sides agree on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import numpy as np

from transport import (
    ControlBlock,
    Counter,
    Phase,
    PipeWriter,
    Ring,
    RingProducer,
    SlotLayout,
    SlotView,
    StartupHandshake,
    StopSignal,
    WeightMailbox,
    WeightReader,
    WeightWriter,
    set_parent_death_signal,
)

LAYOUT = SlotLayout.for_shard(num_envs=3, obs_dim=5, action_dim=2, critic_obs_dim=7)
FIELDS = tuple(field.name for field in LAYOUT.fields)
WAIT_S = 30.0

_TABLE = np.random.default_rng(7).integers(0, 256, size=1 << 14, dtype=np.uint8)
_TABLE[_TABLE == 0xCB] = 0  # never a poisoned flag


#: Flags are windows of tables of their own, all at one place, so that no row is both ended and cut.
_CODES = _TABLE % 5
_FLAGS = {
    "terminated": ((_CODES == 1) | (_CODES == 4)).astype(np.uint8),
    "truncated": ((_CODES == 2) | (_CODES == 4)).astype(np.uint8),
    "cut": (_CODES == 3).astype(np.uint8),
}


def field_bytes(generation: int, name: str, nbytes: int) -> np.ndarray:
    """The bytes of a field in slot ``generation``: a window of a random table that moves on."""
    index = FIELDS.index("terminated" if name in _FLAGS else name)
    begin = (generation * 37 + index * 1009) % (len(_TABLE) - nbytes)
    return _FLAGS.get(name, _TABLE)[begin : begin + nbytes]


def ended(generation: int) -> np.ndarray:
    """Which rows of slot ``generation`` have ended [E]."""
    envs = LAYOUT.num_envs
    return (field_bytes(generation, "terminated", envs) | field_bytes(generation, "truncated", envs)) != 0


def fill(slot: SlotView, generation: int) -> None:
    """Write every field of ``slot`` and its header."""
    slot.num_final = generation % (slot.num_envs + 1)
    slot.policy_version = generation * 3
    for name in FIELDS:
        array = getattr(slot, name)
        array.view(np.uint8).reshape(-1)[:] = field_bytes(generation, name, array.nbytes)


def check(slot: SlotView, generation: int, *, last_of_dead: bool = False) -> None:
    """Assert that ``slot`` is what `fill` wrote, byte for byte.

    Where its producer died, ``cut`` is set in every row that has not ended.
    """
    assert slot.generation == generation
    assert slot.num_final == generation % (slot.num_envs + 1)
    assert slot.policy_version == generation * 3
    for name in FIELDS:
        array = slot.tensor(name).cpu().numpy() if not isinstance(slot, SlotView) else getattr(slot, name)
        if name.startswith("final_") and not isinstance(slot, SlotView) and slot.num_final == 0:
            continue  # a device storage does not copy an empty final area
        expected = field_bytes(generation, name, array.nbytes)
        if name == "cut" and last_of_dead:
            expected = (~ended(generation)).astype(np.uint8)
        assert array.tobytes() == expected.tobytes(), (generation, name)


def delays(seed: int, probability: float, longest_s: float) -> Iterator[None]:
    """Sleeps at random, as long as it is iterated."""
    rng = random.Random(seed)
    while True:
        if rng.random() < probability:
            time.sleep(rng.random() * longest_s)
        yield


def hold_and_step(producer: RingProducer, slots: int | None, stop: StopSignal, pause: Iterator[None]) -> None:
    """A collector's loop: hold g and g+1, write g, and what g yields into g+1, commit g."""
    current = producer.reserve(stop, WAIT_S)
    done = 0
    while current is not None and (slots is None or done < slots) and not stop.is_set():
        following = producer.reserve(stop, WAIT_S)
        fill(current, current.generation)
        if following is not None:
            following.obs.fill(0.5)  # as an environment does, before that slot is filled
        next(pause)
        producer.commit()
        current, done = following, done + 1


def produce(
    *,
    ring: Ring,
    stop: StopSignal,
    slots: int | None = None,
    incarnation: int = 0,
    delay: float = 0.0,
    seed: int = 0,
    handshake: StartupHandshake | None = None,
) -> None:
    """Fill ``slots`` slots (``None``: until stopped or killed)."""
    message = None
    if handshake is not None:
        message = handshake.receive("collector", incarnation, stop, WAIT_S)
    hold_and_step(ring.producer(incarnation, message), slots, stop, delays(seed, delay, 1e-3))


def reserve_then_sleep(*, ring: Ring, started: StopSignal) -> None:
    """Take two tokens and hang."""
    producer = ring.producer()
    producer.reserve()
    slot = producer.reserve()
    assert slot is not None
    slot.obs.fill(1.0)
    started.set()
    time.sleep(WAIT_S)


# Mailbox -----------------------------------------------------------------------------------------

WEIGHTS = 20_000
_RAMP = np.arange(WEIGHTS, dtype=np.float32)


def weights(version: int) -> np.ndarray:
    """A payload that differs from every other version's in every element."""
    return _RAMP + np.float32(version)


def publish_for(*, mailbox: WeightMailbox, stop: StopSignal, report: PipeWriter) -> None:
    """Publish as fast as possible; report (versions, slowest publication in seconds)."""
    writer = mailbox.writer()
    version, slowest = 0, 0.0
    payload = weights(0)
    while not stop.is_set():
        version += 1
        np.add(_RAMP, np.float32(version), out=payload)
        begin = time.thread_time()
        writer.publish(version, payload)
        slowest = max(slowest, time.thread_time() - begin)
    report.send((version, slowest), 1.0)


class SlowReader(WeightReader):
    """Copies the payload in two halves with a pause between, so that the writer overtakes it."""

    def _load(self, index: int) -> None:
        half = self._spare.size // 2
        self._spare[:half] = self._payloads[index, :half]
        time.sleep(2e-3)
        self._spare[half:] = self._payloads[index, half:]


def read_for(
    *,
    mailbox: WeightMailbox,
    stop: StopSignal,
    ready: StopSignal,
    report: PipeWriter,
    slow: bool = False,
    doorbell: int | None = None,
) -> None:
    """Poll as fast as possible; report (versions read, newest, torn reads) or what was wrong."""
    reader = SlowReader(mailbox, None) if slow else mailbox.reader(doorbell)
    last, count = -1, 0
    ready.set()
    while not stop.is_set():
        version = reader.poll()
        if version is None:
            continue
        if version <= last or not np.array_equal(reader.payload, weights(version)):
            report.send(f"version {version} after {last}: {reader.payload[:3]} {reader.payload[-3:]}", 1.0)
            return
        last, count = version, count + 1
    report.send((count, last, reader.torn_reads), 1.0)


class DyingWriter(WeightWriter):
    """Dies in the middle of a payload."""

    def _fill(self, index: int, version: int, payload: np.ndarray) -> None:
        self._payloads[index, : self._payloads.shape[1] // 2] = 0x5A5A5A5A
        os.kill(os.getpid(), signal.SIGKILL)


def publish_and_die(*, mailbox: WeightMailbox, versions: int) -> None:
    """Publish ``versions`` versions and be killed in the next."""
    writer = mailbox.writer()
    for version in range(versions):
        writer.publish(version, weights(version))
    DyingWriter(mailbox, []).publish(versions, weights(versions))


# Pipes, boot, supervision ------------------------------------------------------------------------


def send_many(*, writer: PipeWriter, count: int, size: int) -> None:
    """Send without ever waiting, then leave."""
    for number in range(count):
        writer.send((number, b"x" * size))


def boot_and_step(
    *, name: str, delay_s: float, handshake: StartupHandshake, control: ControlBlock, stop: StopSignal
) -> None:
    """Boot for a while, wait at the barrier, then count steps until stopped."""
    board = control.board(name)
    time.sleep(delay_s)
    board.set_phase(Phase.READY)
    handshake.mark_ready(name)
    if not handshake.wait_released(stop, WAIT_S):
        return
    board.set_phase(Phase.STEPPING)
    while not stop.is_set():
        board.add(Counter.ENV_STEPS, 2)
        time.sleep(1e-3)
    board.set_phase(Phase.DONE)


def wait_for_stop(*, stop: StopSignal, parent: int, ready: StopSignal) -> None:
    """Wait for a stop that never comes, bound to the parent's life."""
    set_parent_death_signal(parent)
    ready.set()
    from transport import wait_any

    wait_any([], stop, 60)  # far beyond what the test grants


def parent_of_one(*, report: PipeWriter) -> None:
    """Start a worker, report its process id, and wait to be killed."""
    import multiprocessing

    stop, ready = StopSignal(), StopSignal()
    ring = Ring.create(LAYOUT)
    process = multiprocessing.get_context("spawn").Process(
        target=wait_for_stop, kwargs={"stop": stop, "parent": os.getpid(), "ready": ready}
    )
    process.start()
    from transport import wait_any

    wait_any([ready], None, WAIT_S)
    report.send(process.pid, 1.0)
    time.sleep(WAIT_S)
    ring.close()


def report_inheritable(*, ring: Ring, report: PipeWriter) -> None:
    """Say which of the passed descriptors a grandchild would get."""
    parts = ring.parts()
    passed = [parts.free.fileno(), parts.filled.fileno(), report.fileno(), ring._control._descriptor.fileno()]
    report.send([fd for fd in passed if os.get_inheritable(fd)], 1.0)
