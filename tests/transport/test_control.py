"""The control block: rows, counters, time budget, stop reason."""

from __future__ import annotations

import os
import time

import pytest

from transport import PARENT, ControlBlock, Counter, Phase, StopReason


def test_rows_start_at_zero_and_belong_to_one_worker_each() -> None:
    control = ControlBlock.create(["learner0", "collector0"])
    before = control.snapshot()
    assert [worker.name for worker in before] == ["learner0", "collector0"]
    assert all(worker.env_steps == worker.updates == worker.generation == 0 for worker in before)
    assert before[0].heartbeat_age_s == float("inf")
    board = control.board("collector0", incarnation=2)
    for counter in Counter:
        board.set(counter, 10 + counter)
    board.add(Counter.ENV_STEPS, 5)
    board.set_collective_seq(9)
    learner, collector = control.snapshot()
    assert learner == before[0].__class__(**{**before[0].__dict__, "taken_ns": learner.taken_ns})
    assert collector.pid == os.getpid()
    assert (collector.incarnation, collector.collective_seq) == (2, 9)
    for counter in Counter:
        expected = 10 + counter + (5 if counter == Counter.ENV_STEPS else 0)
        assert getattr(collector, counter.name.lower()) == expected
    assert collector.heartbeat_age_s < 5


def test_time_budget_adds_up() -> None:
    control = ControlBlock.create(["w"])
    begin = time.monotonic_ns()
    board = control.board("w")
    board.set_phase(Phase.STEPPING)
    time.sleep(0.05)
    board.set_phase(Phase.WAITING)
    time.sleep(0.02)
    board.set_phase(Phase.STEPPING)
    (worker,) = control.snapshot()
    elapsed = time.monotonic_ns() - begin
    assert worker.phase == board.phase == Phase.STEPPING
    assert worker.phase_ns[Phase.STEPPING] >= 50e6
    assert worker.phase_ns[Phase.WAITING] >= 20e6
    assert elapsed - 20e6 <= sum(worker.phase_ns.values()) <= elapsed
    assert worker.phase_age_s < 5


def test_heartbeat_moves_with_every_sign_of_life() -> None:
    control = ControlBlock.create(["w"])
    board = control.board("w")
    first = control.snapshot()[0].heartbeat_ns
    board.beat()
    second = control.snapshot()[0].heartbeat_ns
    board.set_phase(Phase.UPDATING)
    assert first < second < control.snapshot()[0].heartbeat_ns


def test_successor_goes_on_counting_after_a_reset() -> None:
    control = ControlBlock.create(["w"])
    control.board("w").add(Counter.UPDATES, 4)
    control.reset("w")
    (worker,) = control.snapshot()
    assert (worker.pid, worker.heartbeat_ns, worker.updates) == (0, 0, 4)
    control.board("w", 1).add(Counter.UPDATES)
    assert control.snapshot()[0].updates == 5


def test_first_stop_reason_stays() -> None:
    control = ControlBlock.create(["a", "b"])
    assert control.stop_reason == StopReason.NONE
    control.set_stop(StopReason.WORKER_DIED, "b")
    control.set_stop(StopReason.INTERRUPTED)
    assert (control.stop_reason, control.stop_author) == (StopReason.WORKER_DIED, 1)
    other = ControlBlock.create(["a"])
    other.set_stop(StopReason.INTERRUPTED)
    assert other.stop_author == PARENT


def test_names_are_checked() -> None:
    with pytest.raises(ValueError, match="unique"):
        ControlBlock.create(["a", "a"])
    with pytest.raises(ValueError, match="'c'"):
        ControlBlock.create(["a"]).board("c")
