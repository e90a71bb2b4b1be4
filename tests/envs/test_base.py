"""Ends, final observations and void transitions, as the base class decides them, on a script."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from motrix_rl.envs.base import BatchEnv, StepBuffers, WorldError
from motrix_rl.envs.spec import EnvSpec

Script = Callable[[StepBuffers], None]
SPEC = EnvSpec(obs_dim=2, action_dim=1, action_low=(-1.0,), action_high=(1.0,), critic_obs_dim=3)


class Scripted(BatchEnv):
    """Observation: (world, step), or (world, -episode) after a reset. A script then changes the step."""

    def __init__(self, num_envs: int, script: Script = lambda out: None) -> None:
        super().__init__(SPEC, num_envs, first_world=10)
        self.script = script
        self.steps = 0
        self.episode = np.zeros(num_envs)
        self.first_obs = 0.0

    def _seed_worlds(self, seed: int) -> None:
        self.seed_given = seed

    def _reset_worlds(self, worlds, obs, critic_obs) -> None:
        self.episode[worlds] += 1
        obs[worlds, 0] = worlds + self.first_obs
        obs[worlds, 1] = -self.episode[worlds]
        critic_obs[worlds] = -1

    def _step_worlds(self, action, out) -> None:
        self.steps += 1
        out.obs[:, 0] = self._all_worlds
        out.obs[:, 1] = self.steps
        out.critic_obs[:] = self.steps
        out.reward[:] = 1
        out.terminated[:] = 0
        out.truncated[:] = 0
        self.script(out)


def run(env: Scripted) -> tuple[StepBuffers, int]:
    out = StepBuffers.allocate(SPEC, env.num_envs)
    # Whatever lay in the memory before must not matter.
    for array in (out.terminated, out.truncated, out.cut):
        array[:] = 7
    env.reset_into(0, out.obs, out.critic_obs)
    return out, env.step_into(np.zeros((env.num_envs, 1), np.float32), out)


@pytest.mark.covers("A3")
def test_ends_are_compact_ordered_and_terminated_wins() -> None:
    def script(out: StepBuffers) -> None:
        out.terminated[[1, 4]] = 1
        out.truncated[[2, 4]] = 1

    out, count = run(Scripted(5, script))
    assert count == 3
    assert out.final_index[:3].tolist() == [1, 2, 4]
    assert out.final_obs[:3].tolist() == [[1, 1], [2, 1], [4, 1]]
    assert out.final_critic_obs is not None
    assert (out.final_critic_obs[:3] == 1).all()
    assert out.terminated.tolist() == [0, 1, 0, 0, 1]
    assert out.truncated.tolist() == [0, 0, 1, 0, 0]
    assert out.obs[:, 1].tolist() == [1, -2, -2, 1, -2]
    assert out.critic_obs is not None
    assert out.critic_obs[:, 0].tolist() == [1, -1, -1, 1, -1]


def _nan_obs(out: StepBuffers) -> None:
    out.obs[1, 0] = np.nan


def _infinite_obs_of_both_signs(out: StepBuffers) -> None:
    out.obs[1, 0] = np.inf
    out.obs[3, 0] = -np.inf


def _infinite_reward(out: StepBuffers) -> None:
    out.reward[1] = np.inf


def _nan_critic(out: StepBuffers) -> None:
    assert out.critic_obs is not None
    out.critic_obs[1, 2] = np.nan


def _declared(out: StepBuffers) -> None:
    out.cut[1] = 1


@pytest.mark.covers("A8")
@pytest.mark.parametrize("script", [_nan_obs, _infinite_reward, _nan_critic, _declared])
def test_void_rows_are_cut_reset_and_counted(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    def and_ended(out: StepBuffers) -> None:
        out.terminated[[1, 2]] = 1
        script(out)

    env = Scripted(4, and_ended)
    with caplog.at_level(logging.WARNING):
        out, count = run(env)
    assert out.cut.tolist() == [0, 1, 0, 0]
    assert out.terminated.tolist() == [0, 0, 1, 0]
    assert out.reward.tolist() == [1, 0, 1, 1]
    assert count == 1
    assert out.final_index[0] == 2
    assert out.obs.tolist() == [[0, 1], [1, -2], [2, -2], [3, 1]]
    assert env.nonfinite_count == 1
    assert "environment 11 diverged" in caplog.text


@pytest.mark.covers("A8")
def test_infinities_that_would_cancel_are_found() -> None:
    out, _ = run(Scripted(4, _infinite_obs_of_both_signs))
    assert out.cut.tolist() == [0, 1, 0, 1]


@pytest.mark.covers("A8")
def test_large_but_finite_observations_are_not_cut() -> None:
    def script(out: StepBuffers) -> None:
        out.obs[:] = 3e38  # their sum is infinite

    out, _ = run(Scripted(4, script))
    assert not out.cut.any()


def test_the_log_names_worlds_but_does_not_grow_with_every_step(caplog: pytest.LogCaptureFixture) -> None:
    env = Scripted(2, _nan_obs)
    out = StepBuffers.allocate(SPEC, 2)
    env.reset_into(0, out.obs, out.critic_obs)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            env.step_into(np.zeros((2, 1), np.float32), out)
    assert env.nonfinite_count == 1000
    assert len(caplog.records) == 10 + 6  # ten, then 16, 32, ..., 512


def test_a_first_observation_that_is_not_finite_is_an_error() -> None:
    env = Scripted(3)
    env.first_obs = np.nan
    with pytest.raises(WorldError, match="environment 10"):
        run(env)


@pytest.mark.covers("S7")
def test_the_error_of_a_world_crosses_a_process() -> None:
    error = pickle.loads(pickle.dumps(WorldError(3, "stuck")))
    assert (error.world, str(error)) == (3, "environment 3: stuck")


def test_gymnasiums_interface() -> None:
    def script(out: StepBuffers) -> None:
        out.terminated[0] = 1
        out.truncated[1] = 1
        out.obs[2, 0] = np.nan

    env = Scripted(4, script)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.observation_space.shape == (4, 2)
    assert env.action_space.shape == (4, 1)
    first, infos = env.reset(seed=3)
    assert env.seed_given == 3
    assert infos["critic_obs"].shape == (4, 3)
    obs, reward, terminated, truncated, infos = env.step(np.zeros((4, 1), np.float32))
    assert terminated.tolist() == [True, False, False, False]
    assert truncated.tolist() == [False, True, True, False]
    assert reward.tolist() == [1, 1, 0, 1]
    assert infos["_final_obs"].tolist() == [True, True, True, False]
    assert infos["final_obs"][0].tolist() == [0, 1]
    assert infos["final_obs"][2].tolist() == first[2].tolist(), "the last observation that was finite"
    assert infos["final_obs"][3] is None
    assert infos["cut"].tolist() == [False, False, True, False]
    assert obs[:, 1].tolist() == [-2, -2, -2, 1]
    obs[:] = 0
    assert env.step(np.zeros((4, 1), np.float32))[0].any(), "returned arrays are the caller's own"


def test_gymnasiums_interface_refuses_what_it_cannot_do() -> None:
    env = Scripted(2)
    with pytest.raises(ValueError, match="one seed"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="options"):
        env.reset(options={"a": 1})
    with pytest.raises(ValueError, match="num_envs"):
        Scripted(0)
