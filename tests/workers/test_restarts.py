"""When a dead worker is started again, and when that is given up."""

from __future__ import annotations

import pytest

from workers.nonfinite_share import CutShare
from workers.restarts import WINDOW_S, CollectorRestarts, LearnerRestarts


@pytest.mark.covers("S1")
def test_restarts_wait_longer_and_longer_and_end() -> None:
    lives = CollectorRestarts(limit=4)
    waits: list[float | str] = []
    for life in range(5):
        lives.born(10 * life)
        waits.append(lives.another(now=float(life), generation=10 * life + 5))
    assert waits[:4] == [0.0, 1.0, 2.0, 4.0]
    assert "started again 4 times within 10 minutes" in str(waits[4])
    lives.born(60)
    assert lives.another(now=WINDOW_S + 1.5, generation=61) == 2.0  # two have left the window


@pytest.mark.covers("S1")
def test_a_collector_that_collects_nothing_is_given_up() -> None:
    lives = CollectorRestarts(limit=100)
    lives.born(0)
    assert lives.another(0.0, 20) == 0.0
    lives.born(20)
    assert lives.another(1.0, 20) == 1.0
    lives.born(20)
    assert "2 times in a row before it had collected a step" in str(lives.another(2.0, 20))


def test_switched_off_it_says_nothing() -> None:
    assert CollectorRestarts(limit=0).another(0.0, 5) == ""
    assert LearnerRestarts(limit=0).another(0, 5) == ""


@pytest.mark.covers("S3")
def test_a_run_boots_again_while_it_gets_on() -> None:
    lives = LearnerRestarts(limit=2)
    assert lives.another(0, 100) is None
    assert "no new generation since 100" in str(lives.another(100, 100))
    assert lives.another(100, 200) is None
    assert "started again 2 times" in str(lives.another(200, 300))


@pytest.mark.covers("A8")
def test_the_share_of_cut_transitions_is_that_of_the_last_record() -> None:
    share = CutShare(0.1)
    assert share.see(50, 1000) is None
    assert share.see(50, 1010) is None  # too few to say anything
    why = share.see(250, 2000)
    assert why is not None
    assert "20% of the last 1000 transitions" in why
