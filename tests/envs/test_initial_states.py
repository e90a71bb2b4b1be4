"""Episodes start with the distributions of Gymnasium's environments, options included (E1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motrix_rl.envs.base import StepBuffers
from tests.envs._reference import GYMNASIUM_IDS, make_ours, make_theirs

COUNT = 1000
NOISE = {"reset_noise_scale": 0.05}


@pytest.mark.covers("E1")
@pytest.mark.parametrize("task", sorted(GYMNASIUM_IDS))
@pytest.mark.parametrize("changed", [False, True])
def test_initial_states_have_gymnasiums_distribution(task: str, changed: bool) -> None:
    options: dict[str, Any] = dict(NOISE) if changed and task != "reacher" else {}
    env = make_ours(task, COUNT, options, seed=1)
    out = StepBuffers.allocate(env.env_spec, COUNT)
    env.reset_into(None, out.obs)
    theirs: Any = make_theirs(task, options).unwrapped
    theirs.reset(seed=1)
    samples = []
    for _ in range(COUNT):
        theirs.reset()
        samples.append(np.concatenate((theirs.data.qpos, theirs.data.qvel)))
    expected, seen = np.asarray(samples), np.concatenate((env.qpos, env.qvel), axis=1)
    spread = expected.std(axis=0)
    # Four standard errors of a mean of 1000, and of a standard deviation (for a normal, the wider case).
    np.testing.assert_array_less(
        np.abs(seen.mean(0) - expected.mean(0)), 4 * spread * np.sqrt(2 / COUNT) + 1e-12
    )
    np.testing.assert_array_less(np.abs(seen.std(0) - spread), 4 * spread / np.sqrt(COUNT) + 1e-12)
    # No uniform number lies beyond 1.74 standard deviations; of normal ones 7 % lie beyond 1.8.
    tails = [(np.abs(x - x.mean(0)) > 1.8 * x.std(0)).mean(0) for x in (expected, seen)]
    for part in (slice(0, env.model.nq), slice(env.model.nq, None)):
        assert abs(tails[0][part].mean() - tails[1][part].mean()) < 0.035


@pytest.mark.covers("E1")
def test_reachers_targets_are_uniform_over_the_disc() -> None:
    env = make_ours("reacher", 2000)
    out = StepBuffers.allocate(env.env_spec, 2000)
    env.reset_into(None, out.obs)
    radius = np.linalg.norm(env.qpos[:, 2:], axis=1)
    assert radius.max() < 0.2
    assert abs((radius < 0.1).mean() - 0.25) < 0.04
    np.testing.assert_array_equal(out.obs[:, 4:6], env.qpos[:, 2:].astype(np.float32))
