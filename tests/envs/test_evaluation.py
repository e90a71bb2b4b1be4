"""Evaluation over whole episodes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motrix_rl.envs.base import BatchEnv, StepBuffers
from motrix_rl.envs.evaluation import evaluate, student_t_975
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.tasks.registry import make_env

SPEC = EnvSpec(obs_dim=1, action_dim=1, action_low=(-1.0,), action_high=(1.0,))


class Lengths(BatchEnv):
    """World w's episodes last w + 1 steps, and every step gives the number of the episode."""

    def __init__(self, num_envs: int, cut_at: int | None = None) -> None:
        super().__init__(SPEC, num_envs)
        self.cut_at = cut_at

    def _seed_worlds(self, seed: int) -> None:
        self.episode = np.zeros(self.num_envs)
        self.age = np.zeros(self.num_envs)
        self.steps = 0

    def _reset_worlds(self, worlds, obs, critic_obs) -> None:
        self.episode[worlds] += 1
        self.age[worlds] = 0
        obs[worlds] = 0

    def _step_worlds(self, action, out) -> None:
        self.steps += 1
        self.age += 1
        out.obs[:] = action
        out.reward[:] = self.episode
        out.terminated[:] = 0
        out.truncated[:] = self.age > self._all_worlds
        if self.steps == self.cut_at:
            out.reward[-1] = np.nan


def stay(obs: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0


@pytest.mark.covers("E3")
def test_each_world_contributes_its_first_episodes() -> None:
    result = evaluate(Lengths(3), stay, 7, seed=0)
    # Worlds of length 1, 2, 3 with 3, 2 and 2 episodes, whose steps give 1, then 2, then 3.
    assert result.returns.tolist() == [1, 2, 3, 2, 4, 3, 6]
    assert result.lengths.tolist() == [1, 1, 1, 2, 2, 3, 3]
    assert result.episodes == 7
    assert result.return_mean == pytest.approx(3.0)
    assert result.length_mean == pytest.approx(13 / 7)
    deviation = np.std([1, 2, 3, 2, 4, 3, 6], ddof=1)
    assert result.return_ci95 == pytest.approx(2.447 * deviation / math.sqrt(7), rel=1e-3)


@pytest.mark.covers("E3")
def test_fewer_episodes_than_worlds() -> None:
    assert evaluate(Lengths(4), stay, 2, seed=0).lengths.tolist() == [1, 2]
    single = evaluate(Lengths(4), stay, 1, seed=0)
    assert single.episodes == 1
    assert math.isnan(single.return_ci95)
    with pytest.raises(ValueError, match="episodes"):
        evaluate(Lengths(4), stay, 0, seed=0)


def test_cut_episodes_are_counted_and_said() -> None:
    result = evaluate(Lengths(2, cut_at=2), stay, 4, seed=0)
    assert result.cut_episodes == 1
    assert result.lengths.tolist() == [1, 1, 2, 2]


def test_can_be_stopped() -> None:
    calls = iter([False, False, True])
    result = evaluate(Lengths(3), stay, 300, seed=0, should_stop=lambda: next(calls))
    assert result.lengths.tolist() == [1, 1, 1, 2, 3]


@pytest.mark.covers("E2")
def test_same_seed_same_result() -> None:
    env = make_env("hopper", "mujoco", 3, seed=0)
    first, second, other = (evaluate(env, stay, 6, seed=seed) for seed in (1, 1, 2))
    assert first.returns.tolist() == second.returns.tolist()
    assert first.returns.tolist() != other.returns.tolist()


def test_the_policy_sees_the_observation_it_acts_on() -> None:
    seen: list[float] = []

    def act(obs: np.ndarray, out: np.ndarray) -> None:
        seen.append(float(obs[1, 0]))
        out[:] = obs + 1

    evaluate(Lengths(2), act, 4, seed=0)
    assert seen == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (19, 2.093), (99, 1.984)]
)
def test_students_t(degrees: int, quantile: float) -> None:
    assert student_t_975(degrees) == pytest.approx(quantile, rel=0.03 if degrees == 2 else 2e-3)


def test_buffers_have_room_for_every_world_to_end() -> None:
    out = StepBuffers.allocate(SPEC, 5)
    assert out.final_obs.shape == (5, 1)
    assert out.final_index.shape == (5,)
    assert out.critic_obs is None
