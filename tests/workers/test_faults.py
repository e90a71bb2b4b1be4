"""Orders for faults: what is understood, what is refused, when they strike."""

from __future__ import annotations

import time

import pytest

from motrix_rl.errors import UsageError
from transport import ControlBlock, Phase, WorkerBoard
from workers.faults import (
    VARIABLE,
    Fault,
    FaultBoard,
    OrderedFaultError,
    SupervisorFaults,
    board_for,
    check_workers,
    forget_spent,
    read_faults,
)


def test_orders_are_read() -> None:
    orders = "kill:collector-0:stepping:20; slow:learner-1*:saving::;"
    with pytest.raises(UsageError):
        read_faults({VARIABLE: orders})
    orders = "kill:collector-0:stepping:20; slow:learner-1*:saving:2+:0.5;"
    assert read_faults({VARIABLE: orders}) == (
        Fault("kill", "collector-0", "stepping", 20, False, 1.0, False),
        Fault("slow", "learner-1", "saving", 2, True, 0.5, True),
    )
    assert read_faults({}) == ()


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("kil:collector-0:stepping", "did you mean 'kill'"),
        ("kill:collector-0:steping", "did you mean 'stepping'"),
        ("kill:supervisor:stepping", "no phase of supervisor"),
        ("kill:collector-0", "is not KIND:WORKER:PHASE"),
        ("kill:collector-0:stepping:0", "is not an occurrence"),
        ("slow:collector-0:stepping:1:long", "is not a number of seconds"),
        ("nan:evaluator:evaluating", "only collectors and learners"),
        ("stall:supervisor:training", "the supervisor waits for nobody"),
    ],
)
def test_wrong_orders_are_one_line(order: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        read_faults({VARIABLE: order})
    assert "\n" not in str(caught.value)


def test_an_order_for_nobody_is_refused() -> None:
    faults = read_faults({VARIABLE: "kill:collector-7:stepping"})
    with pytest.raises(UsageError, match="no worker 'collector-7'"):
        check_workers(faults, ["learner-0", "collector-0"])


def test_a_plain_board_where_nothing_is_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    control = ControlBlock.create(["collector-0", "collector-1"])
    monkeypatch.delenv(VARIABLE, raising=False)
    assert type(board_for(control, "collector-0", 0)) is WorkerBoard
    monkeypatch.setenv(VARIABLE, "raise:collector-0:stepping:2;raise:collector-1*:stepping")
    assert type(board_for(control, "collector-0", 0)) is FaultBoard
    assert type(board_for(control, "collector-0", 1)) is WorkerBoard
    assert type(board_for(control, "collector-1", 1)) is FaultBoard
    control.close()


def test_a_fault_strikes_at_its_occurrence_in_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    control = ControlBlock.create(["collector-0"])
    monkeypatch.setenv(VARIABLE, "raise:collector-0:stepping:2; slow:collector-0:acting:2+:0.05")
    board = board_for(control, "collector-0", 0)
    board.set_phase(Phase.STEPPING)
    board.set_phase(Phase.ACTING)
    with pytest.raises(OrderedFaultError):
        board.set_phase(Phase.STEPPING)
    assert control.snapshot()[0].phase is Phase.STEPPING  # others see where it struck
    board.set_phase(Phase.STEPPING)
    for _ in range(2):
        began = time.monotonic()
        board.set_phase(Phase.ACTING)
        assert time.monotonic() - began >= 0.05
    control.close()


def test_the_parent_enters_a_phase_once() -> None:
    faults = SupervisorFaults(read_faults({VARIABLE: "raise:supervisor:training:2"}))
    faults.enter("training")
    faults.enter("training")
    faults.enter("saving")
    with pytest.raises(OrderedFaultError):
        faults.enter("training")


def test_only_faults_for_every_life_outlast_a_boot() -> None:
    environment = {VARIABLE: "kill:learner-0:updating;kill:collector-0*:stepping"}
    forget_spent(environment)
    assert [fault.worker for fault in read_faults(environment)] == ["collector-0"]
