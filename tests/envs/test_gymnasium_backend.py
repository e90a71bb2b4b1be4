"""Gymnasium environments by name (E4), their final observations (A3), and their faults (A8, S7)."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
import pytest

from motrix_rl.envs.base import StepBuffers, WorldError
from motrix_rl.envs.gymnasium_backend import GymnasiumBatchEnv
from motrix_rl.errors import UsageError
from motrix_rl.tasks.registry import env_spec, make_env
from tests.envs import gym_envs

MODULE = "tests.envs.gym_envs"


def make(name: str, num_envs: int, **kwargs: Any) -> GymnasiumBatchEnv:
    options = {"kwargs": kwargs}
    env = make_env(f"{MODULE}:{name}", "gymnasium", num_envs, seed=5, options=options)
    assert isinstance(env, GymnasiumBatchEnv)
    return env


def first_step(env: GymnasiumBatchEnv) -> tuple[StepBuffers, np.ndarray]:
    out = StepBuffers.allocate(env.env_spec, env.num_envs)
    env.reset_into(None, out.obs)
    return out, np.zeros((env.num_envs, env.env_spec.action_dim), np.float32)


@pytest.mark.covers("E4")
def test_pendulum_equals_gymnasium_over_episodes() -> None:
    env = make_env("gymnasium:Pendulum-v1", "gymnasium", 2, seed=3)
    assert env.env_spec.max_episode_steps == 200
    assert env.env_spec.action_low == (-2.0,)
    assert env.env_spec.control_dt == pytest.approx(0.05)
    out = StepBuffers.allocate(env.env_spec, 2)
    env.reset_into(3, out.obs)
    theirs = gymnasium.make("Pendulum-v1")
    seed = int(np.random.SeedSequence([3, 1]).generate_state(1)[0] >> 1)
    np.testing.assert_array_equal(out.obs[1], theirs.reset(seed=seed)[0])
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(450):
        action = rng.uniform(-2, 2, (2, 1)).astype(np.float32)
        count = env.step_into(action, out)
        obs, reward, terminated, truncated, _ = theirs.step(action[1])
        assert out.reward[1] == np.float32(reward)
        assert (bool(out.terminated[1]), bool(out.truncated[1])) == (terminated, truncated)
        if truncated:
            assert count == 2
            np.testing.assert_array_equal(out.final_obs[1], obs)
            obs, _ = theirs.reset()
            ends += 1
        np.testing.assert_array_equal(out.obs[1], obs)
    assert ends == 2


@pytest.mark.covers("E4")
def test_dict_and_tuple_observations_of_any_dtype_are_flattened() -> None:
    env = make("MotrixNested-v0", 1)
    assert env.env_spec.obs_dim == 8
    out, action = first_step(env)
    env.step_into(action, out)
    space = gym_envs.Nested.observation_space
    assert list(space.spaces) == ["parts", "where"], "gymnasium sorts the keys of a Dict"
    np.testing.assert_array_equal(out.obs[0], np.array([1, 2, 255, -1, 1, 1.1, 1.2, 1.3], np.float32))


@pytest.mark.covers("E4")
def test_unequal_float64_bounds_are_kept_and_respected() -> None:
    env = make("MotrixCounter-v0", 1)
    assert env.env_spec.action_low == (-1.0, 0.0)
    assert env.env_spec.action_high == (3.0, 0.5)
    out, _ = first_step(env)
    env.step_into(np.array([[7.0, -1.0]], np.float32), out)
    (action,) = env.envs[0].unwrapped.actions
    np.testing.assert_array_equal(action, [3.0, 0.0])
    assert action.dtype == np.float64


@pytest.mark.covers("E4")
def test_whole_numbered_actions_are_rounded_and_shaped() -> None:
    env = make("MotrixWhole-v0", 1)
    out, _ = first_step(env)
    env.step_into(np.array([[1.6, -9.0]], np.float32), out)
    (action,) = env.envs[0].unwrapped.actions
    np.testing.assert_array_equal(action, [[2], [-2]])
    assert action.dtype == np.int64


@pytest.mark.covers("E4", "U1")
@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (f"{MODULE}:MotrixUnbounded-v0", "1 of 2 actions have no finite bounds"),
        (f"{MODULE}:MotrixWords-v0", r"observation\['inner'\]\['word'\] is Discrete\(7\)"),
        ("gymnasium:CartPole-v1", "continuous actions"),
        ("gymnasium:Pendulm-v1", "did you mean 'gymnasium:Pendulum-v1'"),
        ("Pendulum-v9", "did you mean 'gymnasium:Pendulum-v1'"),
        ("gymnasium:Hoper-v2", "did you mean 'gymnasium:Hopper-v5'"),
        ("gymnasium:Nope-v9", "knows no environment 'gymnasium:Nope-v9'$"),
        (f"{MODULE}:MotrixWord-v0", f"did you mean '{MODULE}:MotrixWords-v0'"),
        ("no_such_module:Thing-v0", "no module 'no_such_module'"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(task: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        env_spec(task, "gymnasium")


@pytest.mark.covers("U1")
def test_unknown_constructor_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="gravitation"):
        env_spec("gymnasium:Pendulum-v1", "gymnasium", {"kwargs": {"gravitation": 1}})


@pytest.mark.covers("A3")
@pytest.mark.parametrize(
    ("end", "terminated", "truncated"), [("terminated", 1, 0), ("truncated", 0, 1), ("both", 1, 0)]
)
def test_final_observation_is_the_last_one_of_the_episode(end: str, terminated: int, truncated: int) -> None:
    env = make("MotrixCounter-v0", 3, length=4, end=end)
    out, action = first_step(env)
    for step in range(1, 9):
        count = env.step_into(action, out)
        ended = step % 4 == 0
        assert count == (3 if ended else 0)
        assert out.terminated.tolist() == [terminated * ended] * 3
        assert out.truncated.tolist() == [truncated * ended] * 3
        if ended:
            np.testing.assert_array_equal(out.final_index[:count], [0, 1, 2])
            np.testing.assert_array_equal(out.final_obs[:, :2], [[step // 4, 4]] * 3)
            np.testing.assert_array_equal(out.obs[:, :2], [[step // 4 + 1, 0]] * 3)


@pytest.mark.covers("A3")
def test_time_limit_of_the_options_truncates() -> None:
    options = {"max_episode_steps": 3, "kwargs": {"length": 100}}
    env = make_env(f"{MODULE}:MotrixCounter-v0", "gymnasium", 1, seed=0, options=options)
    out = StepBuffers.allocate(env.env_spec, 1)
    env.reset_into(0, out.obs)
    ends = [env.step_into(np.zeros((1, 2), np.float32), out) for _ in range(6)]
    assert ends == [0, 0, 1, 0, 0, 1]
    assert out.truncated[0] == 1
    assert out.final_obs[0, 1] == 3


@pytest.mark.covers("A8")
@pytest.mark.parametrize("how", ["obs", "reward"])
def test_a_number_that_is_not_finite_is_cut(how: str, caplog: pytest.LogCaptureFixture) -> None:
    gym_envs.Failing.made = 0
    env = make("MotrixFailing-v0", 3, how=how)
    out, action = first_step(env)
    with caplog.at_level(logging.WARNING):
        for step in range(1, 6):
            assert env.step_into(action, out) == 0
            assert np.isfinite(out.obs).all()
            assert np.isfinite(out.reward).all()
            assert out.cut.tolist() == [0, int(step == 3), 0]
            if step == 3:
                assert out.reward.tolist() == [3.0, 0.0, 3.0]
                np.testing.assert_array_equal(out.obs[:, :2], [[1, 3], [2, 0], [1, 3]])
    assert env.nonfinite_count == 1
    assert [record.message for record in caplog.records if "environment 1 diverged" in record.message]


@pytest.mark.covers("S7")
def test_an_exception_names_the_environment_and_keeps_its_traceback() -> None:
    gym_envs.Failing.made = 0
    task = f"{MODULE}:MotrixFailing-v0"
    env = make_env(task, "gymnasium", 3, seed=0, options={"kwargs": {"only": 2}}, first_world=40)
    out = StepBuffers.allocate(env.env_spec, 3)
    env.reset_into(None, out.obs)
    action = np.zeros((3, 2), np.float32)
    env.step_into(action, out)
    env.step_into(action, out)
    with pytest.raises(WorldError, match="environment 42: RuntimeError: the gripper is stuck") as raised:
        env.step_into(action, out)
    assert raised.value.world == 42
    cause = raised.value.__cause__
    assert isinstance(cause, RuntimeError)
    assert cause.__traceback__ is not None


@pytest.mark.covers("E2")
def test_an_environments_stream_depends_on_the_seed_and_its_index_alone() -> None:
    def starts(seed: int, num_envs: int, first_world: int) -> np.ndarray:
        task = f"{MODULE}:MotrixCounter-v0"
        env = make_env(task, "gymnasium", num_envs, seed=seed, first_world=first_world)
        out = StepBuffers.allocate(env.env_spec, num_envs)
        env.reset_into(None, out.obs)
        return out.obs[:, 2].copy()

    whole = starts(1, 4, 0)
    assert len(set(whole.tolist())) == 4
    np.testing.assert_array_equal(whole[2:], starts(1, 2, 2))
    assert starts(2, 4, 0)[0] != whole[0]
