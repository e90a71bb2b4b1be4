"""S9: what a run holds does not grow. Short here; `python -m tests.fault.soak` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.running import options
from tests.fault.soak import History, faults, soak, table


def history(memory_mb: list[float], descriptors: list[int], threads: list[int]) -> History:
    minutes = [0.5 * at for at in range(len(memory_mb))]
    return History(minutes, [1e6 * value for value in memory_mb], descriptors, threads)


@pytest.mark.covers("S9")
def test_what_grows_is_named() -> None:
    flat = history([50.0] * 8, [12] * 8, [4] * 8)
    assert faults({"learner-0": flat}) == []
    leaking = history([50.0 + at for at in range(8)], [12] * 8, [4] * 8)
    assert leaking.slope_mb() == pytest.approx(2.0)
    assert faults({"learner-0": leaking}) == ["memory grows by 2.00 MB a minute, 1.0 are allowed"]
    # A file that is open for a moment is no leak; one more each time is.
    passing = history([50.0] * 8, [12, 12, 12, 13, 12, 12, 12, 12], [4] * 8)
    opening = history([50.0] * 8, [12, 12, 13, 13, 14, 14, 15, 15], [4, 4, 4, 4, 5, 5, 5, 5])
    assert faults({"a": passing, "b": opening}) == ["b: descriptors 12 -> 15", "b: threads 4 -> 5"]
    growing = history([50.0, 51.0, 52.0], [12, 13, 12], [4] * 3)
    assert "| a | 50.0 to 52.0 | +2.000 | 12 to 13 | 4 to 4 |" in table({"a": growing})


@pytest.mark.covers("S9")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_does_not_grow(tmp_path: Path) -> None:
    """Updates, publications, saves and evaluations by the hundred."""
    settings = options(
        algo__trainer__num_learning_iterations=10_000_000,
        algo__agent__buffer_size=2000,
        checkpoint__interval=50,
        eval__interval=50,
        logging__tensorboard=True,
        env__step_s=0.002,
    )
    # In its first minute a learner's heap takes 7 MB at one go, and then no more.
    histories = soak(tmp_path / "run", settings, 60, 60)
    assert {"supervisor", "collector-0", "learner-0", "evaluator"} <= histories.keys()
    # A minute is short for a slope: several times what half an hour may show.
    assert faults(histories, limit_mb=4.0) == [], table(histories)
