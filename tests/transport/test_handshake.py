"""Delivery of slots and the ready barrier."""

from __future__ import annotations

import time

import pytest

from tests.transport.procs_transport import boot_and_step
from transport import ControlBlock, Phase, SlotMessage, StartupHandshake, TransportError

HOST = SlotMessage("host", b"")


def handshake() -> StartupHandshake:
    return StartupHandshake.create(["learner", "c0", "c1"], ["c0", "c1"])


@pytest.mark.covers("H1")
@pytest.mark.timeout(60)
def test_nobody_steps_before_everybody_is_ready(spawn, stop) -> None:
    names = ["c0", "c1", "learner"]
    shake, control = StartupHandshake.create(names), ControlBlock.create(names)
    processes = [
        spawn(
            boot_and_step,
            name=name,
            delay_s=0.4 * i,
            handshake=shake.for_worker(),
            control=control,
            stop=stop,
        )
        for i, name in enumerate(names)
    ]
    while shake.ready_workers() != set(names):
        assert all(worker.env_steps == 0 for worker in control.snapshot())
        assert all(process.is_alive() for process in processes)
        time.sleep(0.01)
    time.sleep(0.1)
    assert all(worker.env_steps == 0 and worker.phase == Phase.READY for worker in control.snapshot())
    shake.release()
    while not all(worker.env_steps > 5 for worker in control.snapshot()):
        time.sleep(0.01)
    stop.set()
    for process in processes:
        process.join(10)
        assert process.exitcode == 0
    assert all(worker.phase == Phase.DONE for worker in control.snapshot())
    shake.close()
    control.close()


@pytest.mark.covers("H1")
def test_barrier_can_be_left_out_and_ends_with_stop(stop) -> None:
    shake = handshake()
    assert not shake.wait_released(stop, 0)
    assert shake.wait_released(stop, 0, barrier=False)
    assert shake.ready_incarnation("c0") is None
    shake.mark_ready("c0", 3)
    assert shake.ready_workers() == {"c0"}
    assert shake.ready_incarnation("c0") == 3
    stop.set()
    assert not shake.wait_released(stop, 20)
    shake.release()
    assert shake.released
    assert shake.wait_released(None, 0)
    shake.close()


@pytest.mark.covers("H4")
def test_exactly_one_message_an_incarnation() -> None:
    shake = handshake()
    learner, collector = shake.for_worker(["c0", "c1"]), shake.for_worker(["c0"])
    learner.deliver("c0", 0, HOST)
    with pytest.raises(TransportError, match="exactly one message"):
        learner.deliver("c0", 0, HOST)
    assert collector.receive("c0", 0, None, 1) == HOST
    with pytest.raises(TransportError, match="twice"):
        collector.receive("c0", 0, None, 1)
    learner.deliver("c1", 0, SlotMessage("cuda", b"handle"))
    assert shake.for_worker(["c1"]).receive("c1", 0, None, 1) == SlotMessage("cuda", b"handle")


@pytest.mark.covers("H4")
def test_unread_message_of_a_dead_incarnation_is_discarded(stop) -> None:
    shake = handshake()
    shake.deliver("c0", 0, SlotMessage("cuda", b"old"))
    successor = shake.for_worker(["c0"])
    assert successor.receive("c0", 1, stop, 0.05) is None
    shake.deliver("c0", 1, SlotMessage("cuda", b"new"))
    assert successor.receive("c0", 1, stop, 1) == SlotMessage("cuda", b"new")
    with pytest.raises(TransportError, match="exactly one"):
        shake.deliver("c0", 0, HOST)
    with pytest.raises(TransportError, match="later life"):
        shake.for_worker(["c0"]).receive("c0", 0, stop, 1)
    stop.set()
    assert shake.for_worker(["c0"]).receive("c0", 2, stop, 20) is None
    shake.close()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unique"):
        StartupHandshake.create(["a", "a"])
    with pytest.raises(ValueError, match="unique"):
        StartupHandshake.create(["a"], ["b"])
    shake = handshake()
    with pytest.raises(ValueError, match="c9"):
        shake.mark_ready("c9")
    with pytest.raises(ValueError, match="learner"):
        shake.deliver("learner", 0, HOST)
