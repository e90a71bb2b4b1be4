"""Who is hung: the worker that works without a sign of life or is stopped, never one that waits; and when all
wait for one another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import pytest

import workers.watchdog as watchdog
from transport import ControlBlock, Counter, Phase
from workers.watchdog import (
    BOOTING,
    UNLIMITED,
    WAITS,
    Watchdog,
    by_suspicion,
    left_behind,
    process_state,
    told,
)


@dataclass
class FakeProcess:
    pid: int


@dataclass
class FakeWorker:
    name: str
    process: FakeProcess
    started_at: float


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watchdog.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(watchdog.time, "monotonic_ns", lambda: int(clock.now * 1e9))
    return clock


def make(clock: Clock, *names: str) -> tuple[ControlBlock, list[Any], dict[str, Any]]:
    control = ControlBlock.create(names)
    workers = [FakeWorker(name, FakeProcess(os.getpid()), clock.now) for name in names]
    return control, workers, {name: control.board(name) for name in names}


@pytest.mark.covers("S2")
@pytest.mark.parametrize("phase", [p for p in Phase if p not in UNLIMITED and p not in BOOTING])
def test_work_without_a_heartbeat_is_found_after_the_limit(phase: Phase, clock: Clock) -> None:
    control, workers, boards = make(clock, "learner-0", "collector-0")
    boards["learner-0"].set_phase(Phase.WAITING)
    boards["collector-0"].set_phase(phase)
    dog = Watchdog(5.0, 100.0)
    dog.hung(workers, control)
    clock.now += 2.0
    assert dog.hung(workers, control) is None
    clock.now += 2.0
    assert dog.hung(workers, control) is None
    clock.now += 2.0
    found = dog.hung(workers, control)
    assert found is not None
    assert found[0].name == "collector-0"
    assert phase.name.lower() in found[1]
    assert "more than 5 s" in found[1]


@pytest.mark.covers("S2")
@pytest.mark.parametrize("phase", sorted(UNLIMITED))
def test_waiting_and_saving_have_no_limit(phase: Phase, clock: Clock) -> None:
    control, workers, boards = make(clock, "learner-0")
    boards["learner-0"].set_phase(phase)
    clock.now += 10_000
    assert Watchdog(5.0, 100.0).hung(workers, control) is None


@pytest.mark.covers("S2", "H3")
@pytest.mark.parametrize("phase", sorted(BOOTING))
def test_a_worker_that_is_started_again_has_the_time_of_a_boot(phase: Phase, clock: Clock) -> None:
    control, workers, boards = make(clock, "collector-0")
    boards["collector-0"].set_phase(phase)
    dog = Watchdog(5.0, 100.0)
    for _ in range(51):
        assert dog.hung(workers, control) is None
        clock.now += 2
    assert dog.hung(workers, control) is not None


@pytest.mark.covers("S2")
def test_a_successor_that_has_not_said_anything_yet_is_judged_from_its_start(clock: Clock) -> None:
    control, workers, _ = make(clock, "collector-0")
    # Between two lives the row is empty: no heartbeat, as if since the machine's start.
    control.reset("collector-0")
    assert Watchdog(5.0, 100.0).hung(workers, control) is None


@pytest.mark.covers("S2")
def test_a_stopped_worker_is_found_also_while_it_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    control, workers, boards = make(clock, "learner-0")
    boards["learner-0"].set_phase(Phase.WAITING)
    state = "T"
    monkeypatch.setattr(watchdog, "process_state", lambda pid: state)
    dog = Watchdog(5.0, 100.0)
    assert dog.hung(workers, control) is None
    clock.now += 4
    assert dog.hung(workers, control) is None
    state = "S"
    assert dog.hung(workers, control) is None  # woken in between: the time begins anew
    state = "T"
    clock.now += 4
    assert dog.hung(workers, control) is None
    clock.now += 6
    found = dog.hung(workers, control)
    assert found is not None
    assert found[1] == "stopped for more than 5 s"


@pytest.mark.covers("S2")
def test_a_parent_that_was_away_judges_nobody_by_that_time(clock: Clock) -> None:
    """All processes of a run may have been stopped together, or the machine."""
    control, workers, boards = make(clock, "learner-0")
    boards["learner-0"].set_phase(Phase.UPDATING)
    dog = Watchdog(5.0, 100.0)
    dog.hung(workers, control)
    clock.now += 1000
    for _ in range(3):
        assert dog.hung(workers, control) is None
        clock.now += 2
    assert dog.hung(workers, control) is not None


@pytest.mark.covers("S2")
def test_of_a_stopped_worker_it_is_said_that_it_is_stopped(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, workers, boards = make(clock, "learner-0")
    boards["learner-0"].set_phase(Phase.UPDATING)
    dog = Watchdog(5.0, 100.0)
    dog.hung(workers, control)
    clock.now += 2  # its last sign of life is older than the stop
    monkeypatch.setattr(watchdog, "process_state", lambda pid: "T")
    assert dog.hung(workers, control) is None
    clock.now += 2
    assert dog.hung(workers, control) is None
    clock.now += 2
    found = dog.hung(workers, control)
    assert found is not None
    assert found[1] == "stopped in phase updating, no progress for more than 5 s"


@pytest.mark.covers("S2")
def test_the_state_of_a_process_is_read_from_the_system() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while process_state(child.pid) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process_state(child.pid) == "T"
        os.kill(child.pid, signal.SIGCONT)
    finally:
        child.kill()
        child.wait()
    assert process_state(child.pid) == ""


class Trio:
    """A learner, a collector and an evaluator that all wait, looked at once a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.control, self.workers, self.boards = make(clock, "learner-0", "collector-0", "evaluator")
        for board in self.boards.values():
            board.set_phase(Phase.WAITING)
        self.dog = Watchdog(5.0, 100.0)
        self.look()

    def look(self, **options: bool) -> tuple[str | None, str] | None:
        self.clock.now += 1.0
        for board in self.boards.values():
            board.beat()
        assert self.dog.hung(self.workers, self.control) is None
        return self.dog.deadlock(self.workers, self.control, **options)

    def looks(self, count: int, **options: bool) -> tuple[str | None, str] | None:
        found = None
        for _ in range(count):
            found = self.look(**options)
        return found


@pytest.mark.covers("S2")
def test_all_waiting_and_nothing_moving_is_a_deadlock(clock: Clock) -> None:
    trio = Trio(clock)
    assert trio.looks(5) is None
    assert trio.look() == (
        None,
        "all have waited for more than 5 s: learner-0 waiting, collector-0 waiting, evaluator waiting",
    )


@pytest.mark.covers("S2")
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in WAITS])
def test_whoever_works_or_saves_or_boots_is_waited_for(phase: Phase, clock: Clock) -> None:
    trio = Trio(clock)
    trio.looks(4)
    trio.boards["evaluator"].set_phase(phase)
    assert trio.looks(20) is None
    trio.boards["evaluator"].set_phase(Phase.WAITING)
    assert trio.looks(5) is None  # the time begins anew
    assert trio.look() is not None


@pytest.mark.covers("S2")
@pytest.mark.parametrize("counter", list(Counter))
def test_a_run_that_gets_on_now_and_then_is_slow_and_no_more(counter: Counter, clock: Clock) -> None:
    """Looks may find everybody in a wait, each time, of a run that is mostly waiting."""
    trio = Trio(clock)
    for _ in range(4):
        assert trio.looks(5) is None
        trio.boards["collector-0"].add(counter)
    trio.boards["learner-0"].set_collective_seq(7)
    assert trio.looks(6) is None  # the first of them sees the change
    assert trio.look() is not None


@pytest.mark.covers("S1")
def test_a_collector_that_is_about_to_be_started_again_is_waited_for(clock: Clock) -> None:
    trio = Trio(clock)
    del trio.workers[1]
    assert trio.looks(20, starting=True) is None
    trio.workers.insert(1, FakeWorker("collector-0", FakeProcess(os.getpid()), clock.now))
    trio.control.reset("collector-0")
    assert trio.look() is None
    assert trio.dog.deadlock(trio.workers, trio.control) is None  # it boots


@pytest.mark.covers("S2")
def test_a_stopped_worker_is_no_deadlock_nor_is_what_follows_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = Trio(clock)
    monkeypatch.setattr(watchdog, "process_state", lambda pid: "T")
    assert trio.looks(5) is None
    monkeypatch.setattr(watchdog, "process_state", lambda pid: "S")
    assert trio.looks(5) is None
    assert trio.look() is not None


@pytest.mark.covers("S2", "S4")
def test_a_stopped_parent_has_seen_no_standstill(clock: Clock) -> None:
    trio = Trio(clock)
    clock.now += 1000
    assert trio.looks(5) is None
    assert trio.look() is not None


@pytest.mark.covers("D12")
def test_the_rank_that_is_left_behind_is_named(clock: Clock) -> None:
    control, workers, boards = make(clock, "learner-0", "learner-1", "collector-0")
    for board, seq in zip(boards.values(), (41, 40, 0), strict=True):
        board.set_phase(Phase.COLLECTIVE if seq else Phase.WAITING)
        board.set_collective_seq(seq)
    dog = Watchdog(5.0, 100.0)
    found = None
    for _ in range(8):
        clock.now += 1
        found = dog.deadlock(workers, control)
    assert found is not None
    assert found[0] == "learner-1"
    assert found[1].endswith("learner-0 collective 41, learner-1 collective 40, collector-0 waiting")
    boards["learner-1"].set_collective_seq(41)
    assert left_behind(control.snapshot()) is None
    boards["learner-0"].set_phase(Phase.WAITING)  # for data; the next collective cannot come before
    boards["learner-1"].set_collective_seq(42)
    assert left_behind(control.snapshot()) is None


def test_of_many_workers_a_line_names_some(clock: Clock) -> None:
    control, _, _ = make(clock, *(f"collector-{i}" for i in range(40)))
    assert told(control.snapshot()).endswith("collector-7 starting and 32 more")


@pytest.mark.covers("S3")
def test_of_an_overdue_boot_the_stopped_and_the_busy_come_before_those_who_wait(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, workers, boards = make(clock, "learner-0", "learner-1", "collector-0")
    boards["learner-0"].set_phase(Phase.COLLECTIVE)
    boards["learner-1"].set_phase(Phase.BUILDING)
    boards["collector-0"].set_phase(Phase.WAITING)
    busy = [words for _, words in by_suspicion(workers, control)]
    assert busy == ["learner-1 (building)", "learner-0 (collective)", "collector-0 (waiting)"]
    workers[2].process = FakeProcess(-1)
    monkeypatch.setattr(watchdog, "process_state", lambda pid: "T" if pid == -1 else "S")
    stopped = [words for _, words in by_suspicion(workers, control)]
    assert stopped[0] == "collector-0 (stopped in waiting)"
