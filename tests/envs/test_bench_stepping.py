"""The measurement of ways to step; its figures are not tested, what it measures is."""

from __future__ import annotations

import numpy as np
import pytest

from motrix_rl.envs.bench_stepping import _Worlds, measure_stepping


def test_every_way_is_measured() -> None:
    rates = measure_stepping(("hopper",), threads=(1, 2), worlds=(4,), world_steps=8)
    ways = {(rate.way, rate.threads) for rate in rates}
    both = {(way, count) for way in ("env", "batch", "batch persistent", "rollout") for count in (1, 2)}
    assert ways == both | {("loop", 1), ("threads", 2)}
    assert all(rate.steps_per_second > 0 for rate in rates)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_ways_step_the_same_worlds(threads: int) -> None:
    setup = _Worlds("halfcheetah", 4, threads)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 4, 6)).astype(np.float32)
    results = {}
    for way, step in setup.ways().items():
        if way == "env":
            continue
        for action in actions:
            step(action)
        results[way] = setup.obs.copy()
    plain = results.pop("loop" if threads == 1 else "threads")
    rollout = results.pop("rollout")
    for way, obs in results.items():
        np.testing.assert_array_equal(obs, plain, err_msg=way)
    # The warm start is missing there: the same to what the solver leaves over.
    np.testing.assert_allclose(rollout, plain, atol=0.05)
