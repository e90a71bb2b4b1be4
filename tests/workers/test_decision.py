"""The arithmetic of updates, and what rank 0 decides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.collectives import SoloRank
from workers.decision import (
    Decision,
    LearnerView,
    Operation,
    UpdateSchedule,
    decide,
    warmup_generations,
)

VIEW = LearnerView(admitted=0, complete=0, done=0, total=100, stopping=False, save_due=False, saved=True)


@pytest.mark.covers("D1", "D2")
@pytest.mark.parametrize(
    ("starts", "envs", "n_step", "base"),
    [(0, 8, 1, 1), (1, 8, 1, 1), (80, 8, 1, 10), (81, 8, 1, 11), (8, 8, 5, 5), (5000, 32, 1, 157)],
)
def test_the_warm_up_is_whole_generations_and_at_least_one_window(
    starts: int, envs: int, n_step: int, base: int
) -> None:
    assert warmup_generations(starts, envs, n_step) == base


@pytest.mark.covers("D1")
@given(
    rate=st.integers(1, 9),
    base=st.integers(1, 40),
    max_ingest=st.integers(1, 12),
    boundaries=st.integers(0, 15),
    arrivals=st.lists(st.integers(0, 9), min_size=1, max_size=60),
)
def test_strict_does_exactly_the_formula_at_every_decision(
    rate: int, base: int, max_ingest: int, boundaries: int, arrivals: list[int]
) -> None:
    schedule = UpdateSchedule(rate, base)
    view = replace(VIEW, total=200)
    for arrived in arrivals:
        view = replace(view, complete=view.complete + arrived)
        while (decision := decide(view, schedule, max_ingest, boundaries)) is not None:
            if decision.operation is Operation.STOP:
                assert view.admitted == view.total
                break
            assert view.admitted < decision.generation <= min(view.complete, view.total)
            assert decision.generation - view.admitted <= max_ingest
            view = replace(view, admitted=decision.generation, done=view.done + decision.num_updates)
            assert view.done == rate * max(0, view.admitted - base)


@pytest.mark.covers("C2", "D1")
@given(
    admitted=st.integers(0, 500),
    ahead=st.integers(1, 60),
    max_ingest=st.integers(1, 80),
    interval=st.integers(1, 60),
)
def test_no_decision_crosses_a_checkpoint(admitted: int, ahead: int, max_ingest: int, interval: int) -> None:
    view = replace(VIEW, admitted=admitted, complete=admitted + ahead, total=10_000)
    decision = decide(view, UpdateSchedule(1, 1), max_ingest, interval)
    assert decision is not None
    assert (decision.generation - 1) // interval == admitted // interval


@pytest.mark.covers("D2")
def test_the_warm_up_leaves_no_debt() -> None:
    schedule = UpdateSchedule(num_updates=4, base=50)
    assert [schedule.owed(g, g + 1, 0) for g in (0, 30, 48, 49)] == [0, 0, 0, 0]
    assert schedule.owed(50, 51, 0) == 4
    assert schedule.owed(40, 52, 0) == 8  # a decision over the end of the warm-up owes what lies behind it


class Ledger:
    """What strict owes, counted one generation at a time: its rate, from where its refill has ended."""

    def __init__(self, rate: int, base: int) -> None:
        self.rate, self.base, self.owed = rate, base, 0

    def admit(self, generation: int) -> None:
        self.owed += self.rate if generation >= self.base else 0


@pytest.mark.covers("D1", "D2")
@given(
    data=st.data(),
    rate=st.integers(1, 5),
    warmup=st.integers(1, 12),
    lives=st.lists(st.tuples(st.integers(0, 25), st.booleans(), st.integers(1, 5)), min_size=1, max_size=5),
)
def test_strict_is_exact_through_resumes_with_and_without_replay_and_other_rates(
    data: st.DataObject, rate: int, warmup: int, lives: list[tuple[int, bool, int]]
) -> None:
    schedule, ledger = UpdateSchedule(rate, warmup), Ledger(rate, warmup)
    admitted = done = 0
    for length, with_replay, new_rate in lives:
        end = admitted + length
        while admitted < end:
            target = min(end, admitted + data.draw(st.integers(1, 6)))
            done += schedule.owed(admitted, target, done)
            for generation in range(admitted, target):
                ledger.admit(generation)
            admitted = target
            assert done == ledger.owed == schedule.due(admitted)
        refill = 0 if with_replay else warmup
        schedule = UpdateSchedule(**schedule.state_dict()).resumed(
            num_updates=new_rate, mode="strict", generation=admitted, done=done, refill=refill
        )
        ledger.rate = new_rate
        ledger.base = max(ledger.base, admitted + refill)
        assert schedule.due(admitted) == done, "a resume begins with a debt or a burst"
        assert all(schedule.owed(admitted, admitted + k, done) == 0 for k in range(1, refill + 1))


@pytest.mark.covers("D2")
def test_a_resume_from_another_mode_begins_without_a_debt() -> None:
    bound = UpdateSchedule(num_updates=4, base=10, mode="learner_bound")
    strict = bound.resumed(num_updates=4, mode="strict", generation=100, done=40, refill=0)
    assert strict.owed(100, 101, 40) == 4


@pytest.mark.covers("D3")
@given(admitted=st.integers(0, 60), step=st.integers(1, 30), base=st.integers(1, 40), rate=st.integers(1, 6))
def test_learner_bound_owes_the_rate_for_any_progress(admitted: int, step: int, base: int, rate: int) -> None:
    schedule = UpdateSchedule(rate, base, mode="learner_bound")
    assert schedule.owed(admitted, admitted + step, done=7) == (rate if admitted + step > base else 0)
    assert schedule.owed(admitted, admitted, done=7) == 0


@pytest.mark.covers("D1", "S5")
def test_what_is_decided_first() -> None:
    schedule = UpdateSchedule(1, 1)
    save, stop = Decision(Operation.SAVE, 0, 5), Decision(Operation.STOP, 0, 5)
    waiting = replace(VIEW, admitted=5, complete=9)
    assert decide(replace(waiting, save_due=True, saved=False), schedule, 8) == save
    assert decide(replace(waiting, save_due=True, saved=True), schedule, 8) == Decision(Operation.TRAIN, 8, 9)
    assert decide(replace(waiting, stopping=True, saved=False), schedule, 8) == save
    assert decide(replace(waiting, stopping=True, saved=True), schedule, 8) == stop
    assert decide(replace(waiting, complete=5), schedule, 8) is None


@pytest.mark.covers("D1", "S5")
def test_a_run_ends_at_its_last_generation_saved() -> None:
    schedule = UpdateSchedule(1, 1)
    late = replace(VIEW, admitted=98, complete=200, done=97)
    assert decide(late, schedule, 8) == Decision(Operation.TRAIN, 2, 100)
    end = replace(late, admitted=100)
    assert decide(replace(end, saved=False), schedule, 8) == Decision(Operation.SAVE, 0, 100)
    assert decide(end, schedule, 8) == Decision(Operation.STOP, 0, 100)


@pytest.mark.covers("D7")
def test_the_channel_of_one_rank_hands_the_decision_through() -> None:
    decision = Decision(Operation.TRAIN, 3, 7)
    assert SoloRank().share(decision) is decision


@pytest.mark.covers("D1")
@given(st.integers(1, 9), st.integers(1, 99), st.integers(0, 999))
def test_a_schedule_survives_its_checkpoint(rate: int, base: int, anchor: int) -> None:
    schedule = UpdateSchedule(rate, base, anchor, "learner_bound")
    assert UpdateSchedule(**schedule.state_dict()) == schedule  # type: ignore[arg-type]
    assert not math.isnan(schedule.due(base))
