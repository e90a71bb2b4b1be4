"""Who is hung: the worker that works without a sign of life or is stopped, never one that waits."""

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
from transport import ControlBlock, Phase
from workers.watchdog import BOOTING, UNLIMITED, Watchdog, process_state


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
    clock.now += 4.0
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
    clock.now += 99
    assert Watchdog(5.0, 100.0).hung(workers, control) is None
    clock.now += 2
    assert Watchdog(5.0, 100.0).hung(workers, control) is not None


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
def test_of_a_stopped_worker_it_is_said_that_it_is_stopped(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, workers, boards = make(clock, "learner-0")
    boards["learner-0"].set_phase(Phase.UPDATING)
    clock.now += 3  # its last sign of life is older than the stop
    monkeypatch.setattr(watchdog, "process_state", lambda pid: "T")
    dog = Watchdog(5.0, 100.0)
    assert dog.hung(workers, control) is None
    clock.now += 3
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
