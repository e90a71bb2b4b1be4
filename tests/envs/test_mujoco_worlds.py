"""Worlds of the MuJoCo backend: a plain loop as oracle, independence, resets, divergence, checkpoints."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from motrix_rl.envs.base import StepBuffers, WorldError
from motrix_rl.envs.mujoco.base import MujocoBatchEnv
from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.tasks.registry import make_env
from tests.envs._reference import make_ours

TASKS = [
    "ant",
    "cartpole-swingup",
    "halfcheetah",
    "hopper",
    "humanoid",
    "inverted-double-pendulum",
    "reacher",
]
Trajectory = list[tuple[Any, ...]]


def actions(env: MujocoBatchEnv, steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low, high = env.env_spec.action_low, env.env_spec.action_high
    return rng.uniform(low, high, (steps, env.num_envs, len(low))).astype(np.float32)


def roll(env: MujocoBatchEnv, chosen: np.ndarray, seed: int | None = None) -> Trajectory:
    """Returns (obs, reward, terminated, truncated, cut, finals) of every step, the reset first."""
    out = StepBuffers.allocate(env.env_spec, env.num_envs)
    env.reset_into(seed, out.obs)
    seen: Trajectory = [(out.obs.copy(),)]
    seen += go_on(env, chosen, out)
    return seen


def go_on(env: MujocoBatchEnv, chosen: np.ndarray, out: StepBuffers) -> Trajectory:
    seen: Trajectory = []
    for action in chosen:
        count = env.step_into(action, out)
        arrays = (out.obs, out.reward, out.terminated, out.truncated, out.cut, out.final_obs[:count])
        seen.append(tuple(array.copy() for array in arrays))
    return seen


def assert_same(one: Trajectory, other: Trajectory, columns: slice = slice(None)) -> None:
    assert len(one) == len(other)
    for step, (a, b) in enumerate(zip(one, other, strict=True)):
        for x, y in zip(a[:5], b[:5], strict=True):
            np.testing.assert_array_equal(x[columns], y[columns], err_msg=f"step {step}")


@pytest.mark.covers("E1")
@pytest.mark.parametrize("task", TASKS)
def test_states_equal_a_plain_loop_over_one_mjdata_a_world(task: str) -> None:
    env = make_ours(task, 3, num_threads=2)
    out = StepBuffers.allocate(env.env_spec, 3)
    env.reset_into(7, out.obs)
    plain = [mujoco.MjData(env.model) for _ in range(3)]

    def restart(world: int) -> None:
        mujoco.mj_resetData(env.model, plain[world])
        plain[world].qpos[:], plain[world].qvel[:] = env.qpos[world], env.qvel[world]
        mujoco.mj_forward(env.model, plain[world])

    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    row = np.zeros(mujoco.mj_stateSize(env.model, spec))
    for world in range(3):
        restart(world)
    for action in actions(env, 120):
        env.step_into(action, out)
        ended = out.terminated | out.truncated | out.cut
        for world, data in enumerate(plain):
            data.ctrl[:] = action[world]
            mujoco.mj_step(env.model, data, nstep=env.frame_skip)
            if ended[world]:
                restart(world)
            mujoco.mj_getState(env.model, data, row, spec)
            np.testing.assert_array_equal(env.batch.state[world], row)


@pytest.mark.covers("E2")
@pytest.mark.parametrize("task", TASKS)
def test_result_does_not_depend_on_the_number_of_threads(task: str) -> None:
    one, two = (make_ours(task, 6, num_threads=count) for count in (1, 2))
    chosen = actions(one, 80)
    assert_same(roll(one, chosen, 4), roll(two, chosen, 4))


@pytest.mark.covers("E2")
@pytest.mark.parametrize("task", TASKS)
def test_result_does_not_depend_on_the_division_into_shards(task: str) -> None:
    whole = make_ours(task, 6, seed=9)
    shard = make_ours(task, 2, seed=9, first_world=3)
    chosen = actions(whole, 80)
    columns = [tuple(array[3:5] for array in step[:5]) for step in roll(whole, chosen)]
    assert_same(columns, roll(shard, chosen[:, 3:5]))


@pytest.mark.covers("E2", "A8")
def test_a_world_that_is_driven_otherwise_or_diverges_changes_no_other() -> None:
    calm, wild = make_ours("hopper", 5, seed=2), make_ours("hopper", 5, seed=2)
    chosen = actions(calm, 60)
    other = chosen.copy()
    other[:, 2] = -chosen[:, 2]
    other[::7, 2] = np.nan
    expected, seen = roll(calm, chosen), roll(wild, other)
    assert_same(expected, seen, slice(0, 2))
    assert_same(expected, seen, slice(3, 5))
    assert wild.nonfinite_count >= 8
    assert calm.nonfinite_count == 0


@pytest.mark.covers("E2")
def test_same_seed_same_trajectory_and_another_seed_another_one() -> None:
    env = make_ours("hopper", 4, seed=1)
    chosen = actions(env, 60)
    first = roll(env, chosen, 1)
    assert_same(first, roll(env, chosen, 1))
    assert_same(first, roll(make_ours("hopper", 4, seed=1), chosen))
    assert (roll(env, chosen, 2)[0][0] != first[0][0]).any()
    starts = first[0][0]
    assert len({row.tobytes() for row in starts}) == 4, "worlds differ from one another"


@pytest.mark.covers("E3")
def test_reset_is_per_world_and_every_episode_is_counted_once() -> None:
    env = make_ours("hopper", 5, {"max_episode_steps": 15}, seed=3)
    out = StepBuffers.allocate(env.env_spec, 5)
    env.reset_into(None, out.obs)
    length = np.zeros(5, int)
    total, finals = 0, 0
    for action in actions(env, 200):
        before = env.batch.bind("time").copy()
        finals += env.step_into(action, out)
        length += 1
        ended = (out.terminated | out.truncated).astype(bool)
        time = env.batch.bind("time")
        assert (time[ended] == 0).all()
        np.testing.assert_allclose(time[~ended], before[~ended] + env.dt, rtol=1e-12)
        assert (length[ended] <= 15).all()
        assert (length[out.truncated.astype(bool)] == 15).all()
        assert (length[~ended] < 15).all()
        total += length[ended].sum()
        length[ended] = 0
    assert finals > 20
    assert total + length.sum() == 200 * 5


@pytest.mark.covers("A3")
@pytest.mark.parametrize("task", ["halfcheetah", "ant"])
def test_final_observation_is_real(task: str) -> None:
    short = make_ours(task, 2, {"max_episode_steps": 10}, seed=6)
    endless = make_ours(task, 2, {"max_episode_steps": None}, seed=6)
    chosen = actions(short, 10)
    ended, unended = roll(short, chosen)[-1], roll(endless, chosen)[-1]
    assert ended[3].tolist() == [1, 1]
    np.testing.assert_array_equal(ended[5], unended[0])
    assert (ended[0] != unended[0]).any()


def diverge_by_velocity(env: MujocoBatchEnv, action: np.ndarray) -> None:
    env.qvel[1] = 1e9


def diverge_by_nan(env: MujocoBatchEnv, action: np.ndarray) -> None:
    env.qpos[1, 0] = np.nan


def diverge_by_control(env: MujocoBatchEnv, action: np.ndarray) -> None:
    action[1] = np.nan


@pytest.mark.covers("A8")
@pytest.mark.parametrize("spoil", [diverge_by_velocity, diverge_by_nan, diverge_by_control])
@pytest.mark.parametrize("task", ["hopper", "humanoid", "cartpole-swingup"])
def test_a_diverging_world_is_cut_and_reset_and_leaves_no_file(
    task: str, spoil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    env, calm = make_ours(task, 3, seed=5), make_ours(task, 3, seed=5)
    out, untouched = (StepBuffers.allocate(env.env_spec, 3) for _ in range(2))
    env.reset_into(None, out.obs)
    calm.reset_into(None, untouched.obs)
    for step, action in enumerate(actions(env, 8)):
        calm.step_into(action, untouched)
        again = action.copy()
        # Twice in a row: MuJoCo's own counters start over when it resets a world.
        spoiled = step in (2, 3, 6)
        if spoiled:
            spoil(env, again)
        with caplog.at_level(logging.WARNING):
            env.step_into(again, out)
        assert out.cut.tolist() == [0, int(spoiled), 0]
        assert np.isfinite(out.obs).all()
        if spoiled:
            assert out.reward[1] == 0
            assert not out.terminated[1] | out.truncated[1]
            assert env.batch.bind("time")[1] == 0
        np.testing.assert_array_equal(out.obs[[0, 2]], untouched.obs[[0, 2]])
        np.testing.assert_array_equal(out.reward[[0, 2]], untouched.reward[[0, 2]])
    assert env.nonfinite_count == 3
    assert "environment 1 diverged" in caplog.text
    assert not list(tmp_path.iterdir())


@pytest.mark.covers("S7")
def test_an_error_of_mujoco_names_the_world() -> None:
    env = make_env("tests.envs.own_tasks:Cramped", "mujoco", 3, seed=0, first_world=8)
    assert isinstance(env, MujocoBatchEnv)
    out = StepBuffers.allocate(env.env_spec, 3)
    env.reset_into(None, out.obs)
    env.step_into(np.zeros((3, 1), np.float32), out)
    env.qpos[1] = -2
    with pytest.raises(WorldError, match=r"environment 9: MuJoCo: .*out of memory") as raised:
        env.step_into(np.zeros((3, 1), np.float32), out)
    assert type(raised.value.__cause__).__name__ == "SimulationError"


@pytest.mark.covers("C1")
@pytest.mark.parametrize("task", TASKS)
def test_a_saved_state_goes_on_to_the_bit(task: str) -> None:
    env = make_ours(task, 4, {"max_episode_steps": 40}, seed=8)
    chosen = actions(env, 90)
    roll(env, chosen[:30])
    state = pickle.loads(pickle.dumps(env.state_dict()))
    out = StepBuffers.allocate(env.env_spec, 4)
    env.current_obs_into(out.obs)
    at_save = out.obs.copy()
    expected = go_on(env, chosen[30:], out)
    fresh = make_ours(task, 4, {"max_episode_steps": 40}, seed=77, num_threads=1)
    fresh.load_state_dict(state)
    fresh.current_obs_into(out.obs)
    np.testing.assert_array_equal(out.obs, at_save)
    assert_same(expected, go_on(fresh, chosen[30:], out))


def test_a_state_of_another_task_or_size_is_refused() -> None:
    state = make_ours("hopper", 2).state_dict()
    for task, num_envs in (("halfcheetah", 2), ("walker2d", 2), ("hopper", 3)):
        with pytest.raises(MotrixError, match="does not fit"):
            make_ours(task, num_envs).load_state_dict(state)


def test_mj_data_shows_a_world() -> None:
    env = make_ours("ant", 2)
    roll(env, actions(env, 3))
    data = env.mj_data(1)
    np.testing.assert_array_equal(data.qpos, env.qpos[1])
    assert np.abs(data.xpos[1] - env.qpos[1, :3]).max() < 1e-12


def test_arrays_over_a_batch_outlive_it() -> None:
    env = make_ours("ant", 2)
    qpos, forces = env.qpos, env.batch.bind("cfrc_ext")
    before = qpos.copy()
    env.close()
    del env
    np.testing.assert_array_equal(qpos, before)
    assert forces.shape == (2, 14, 6)


@pytest.mark.covers("U1")
def test_a_model_that_is_missing_or_broken_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody><body></worldbody></mujoco>")
    for name, message in (
        ("hoper.xml", "did you mean 'hopper.xml'"),
        (str(tmp_path / "none.xml"), "no file"),
        (str(broken), "not a valid model"),
    ):
        with pytest.raises(UsageError, match=message):
            make_ours("hopper", 1, {"xml_file": name})
    with pytest.raises(UsageError, match="no such body"):
        make_ours("ant", 1, {"main_body": "torzo"})
