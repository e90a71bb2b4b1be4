"""Returns and lengths of episodes, from the slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.statistics import WINDOW, EpisodeStatistics


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


@pytest.mark.covers("E3")
@given(seed=st.integers(0, 10_000), shards=st.sampled_from([(4,), (2, 2), (1, 3)]))
def test_every_episode_is_counted_once(seed: int, shards: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    envs, steps = sum(shards), 60
    statistics = EpisodeStatistics(envs)
    running: list[list[float]] = [[] for _ in range(envs)]
    results: list[tuple[float, int]] = []
    aborted = 0
    for _ in range(steps):
        reward = rng.standard_normal(envs).astype(np.float32)
        ended = (rng.random(envs) < 0.1).astype(np.uint8)
        cut = ((rng.random(envs) < 0.05) & (ended == 0)).astype(np.uint8)
        for env in range(envs):
            running[env].append(float(reward[env]))
            if ended[env]:
                results.append((sum(running[env]), len(running[env])))
            if cut[env]:
                aborted += 1
            if ended[env] or cut[env]:
                running[env] = []
        lo = 0
        for width in shards:
            rows = slice(lo, lo + width)
            statistics.add(lo, reward[rows], ended[rows], cut[rows])
            lo += width
        if rng.random() < 0.05:  # a restart
            aborted += sum(bool(steps) for steps in running[: shards[0]])
            running[: shards[0]] = [[] for _ in range(shards[0])]
            statistics.abort(range(shards[0]))
    summary = statistics.summary()
    assert (summary.episodes, summary.aborted) == (len(results), aborted)
    window = results[-WINDOW:]
    assert summary.window == len(window)
    if window:
        assert summary.return_mean == pytest.approx(np.mean([value for value, _ in window]), abs=1e-9)
        assert summary.length_mean == pytest.approx(np.mean([length for _, length in window]))
    else:
        assert math.isnan(summary.return_mean)
        assert math.isnan(summary.length_mean)


@pytest.mark.covers("E3")
def test_an_aborted_episode_is_no_result_and_nothing_of_it_goes_on() -> None:
    statistics = EpisodeStatistics(2)
    statistics.add(0, np.array([5.0, 1.0], np.float32), flags(0, 0), flags(0, 0))
    statistics.abort([0])
    statistics.abort([0])  # a second fault before a step: there is nothing left to abort
    statistics.add(0, np.array([2.0, 1.0], np.float32), flags(1, 1), flags(0, 0))
    summary = statistics.summary()
    assert (summary.return_mean, summary.length_mean, summary.episodes, summary.aborted) == (2.0, 1.5, 2, 1)


@pytest.mark.covers("C1")
def test_counters_and_window_survive_a_checkpoint_and_running_episodes_do_not() -> None:
    before = EpisodeStatistics(1)
    for length in (3, 4):
        for step in range(length):
            before.add(0, np.array([1.0], np.float32), flags(int(step == length - 1)), flags(0))
    before.add(0, np.array([100.0], np.float32), flags(0), flags(0))
    after = EpisodeStatistics(1)
    after.load_state_dict(before.state_dict())
    assert after.summary() == before.summary()
    after.add(0, np.array([1.0], np.float32), flags(1), flags(0))
    assert after.summary().return_mean == pytest.approx((3 + 4 + 1) / 3)
