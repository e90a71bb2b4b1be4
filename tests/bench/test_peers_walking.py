"""The walking robot of the rates: its model, our task of it, and formulas beside plain ones, world by world."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from tests.bench.peers import catalogue, robot
from tests.bench.peers.native import walking
from tests.bench.peers.walking_task import Walking, WalkingOptions


@pytest.fixture(scope="module")
def robot_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return robot.write_robot(tmp_path_factory.mktemp("robot"))


@pytest.fixture
def worlds(robot_files: Path):
    env = Walking(WalkingOptions(scene=str(robot_files / "scene.xml")), 16, seed=3)
    yield env
    env.close()


# The robot --------------------------------------------------------------------------------------------------


def test_the_robot_has_29_actuated_hinges_in_the_order_of_its_start_pose(robot_files: Path) -> None:
    names = [joint.name for joint in robot.joints()]
    assert len(names) == len(set(names)) == walking.JOINTS == 29
    for file, planes in (("robot.xml", 0), ("scene.xml", 1)):
        model = mujoco.MjModel.from_xml_path(str(robot_files / file))
        assert (model.nq, model.nv, model.nu) == (36, 35, 29)
        assert [model.joint(k).name for k in range(1, model.njnt)] == names
        assert [model.joint(model.actuator(k).trnid[0]).name for k in range(model.nu)] == names
        assert (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE).sum() == planes
    assert (model.opt.timestep, model.opt.iterations, model.opt.tolerance) == (0.005, 3, 1e-4)
    assert model.opt.timestep * robot.SUBSTEPS == pytest.approx(walking.CONTROL_DT)
    home = json.loads((robot_files / "robot.json").read_text())["home"]
    assert list(home.values()) == robot.home_pose()


def test_the_robot_is_the_same_each_time(robot_files: Path, tmp_path: Path) -> None:
    again = robot.write_robot(tmp_path / "again")
    for file in ("robot.xml", "scene.xml", "robot.json"):
        assert (again / file).read_bytes() == (robot_files / file).read_bytes()


def test_the_robot_stands_for_a_second_on_its_feet_alone(robot_files: Path) -> None:
    model = mujoco.MjModel.from_xml_path(str(robot_files / "scene.xml"))
    data = mujoco.MjData(model)
    data.qpos[7:] = data.ctrl[:] = robot.home_pose()
    for _ in range(200):
        mujoco.mj_step(model, data)
    assert data.qpos[2] == pytest.approx(robot.home_height(), abs=0.02)
    assert data.ncon == 8, "two ends of two rods at each foot"
    touching = {model.body(model.geom_bodyid[c.geom2]).name for c in data.contact}
    assert touching == {"left_ankle_roll_link", "right_ankle_roll_link"}


# The task ---------------------------------------------------------------------------------------------------


def by_hand(env: Walking, world: int, now: np.ndarray, before: np.ndarray, steps: int) -> dict[str, Any]:
    """Reward, end and observations of one world, number by number, from the state that it is in.

    `now` and `before` are its last two actions, zero before the first of an episode.
    """
    position, velocity = env.qpos[world], env.qvel[world]
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, position[3:7])
    to_body = matrix.reshape(3, 3).T
    forward, up = to_body @ velocity[:3], to_body @ np.array([0.0, 0.0, -1.0])
    angles = [float(q - home) for q, home in zip(position[7:], robot.home_pose(), strict=True)]
    x, y, turn = (float(value) for value in env.command[world])
    reward = 2.0 * np.exp(-((x - forward[0]) ** 2 + (y - forward[1]) ** 2) / 0.25)
    reward += 1.5 * np.exp(-((turn - velocity[5]) ** 2) / 0.25)
    reward -= 0.01 * sum((a - b) ** 2 for a, b in zip(now, before, strict=True))
    reward -= 0.1 * sum(angle**2 for angle in angles)
    reward -= 5.0 * (up[0] ** 2 + up[1] ** 2)
    left = float(env.phase[world]) + 2 * np.pi * 1.25 * 0.02 * steps
    legs = [np.sin(left), np.sin(left + np.pi), np.cos(left), np.cos(left + np.pi)]
    slow = [0.05 * speed for speed in velocity[6:]]
    start = [*(0.25 * velocity[3:6]), *up, x, y, turn]
    return {
        "reward": 0.02 * (reward + 1.0),
        "fallen": position[2] < 0.45 or up[2] > -0.6,
        "critic": [*(2.0 * forward), *start, *angles, *slow, *now, *legs],
        "actor": [*start, *angles, *slow, *now, *legs],
    }


def test_reward_end_and_observations_are_those_computed_by_hand(worlds: Walking) -> None:
    worlds.reset(seed=5)
    rng = np.random.default_rng(0)
    compared = 0
    before, steps = np.zeros((16, 29)), np.zeros(16, int)
    for _ in range(60):
        actions = rng.uniform(-2, 2, (16, 29)).astype(np.float32)
        obs, reward, terminated, truncated, infos = worlds.step(actions)
        ended = terminated | truncated
        steps += 1
        for world in np.flatnonzero(~ended):
            now = actions[world].astype(float)
            expected = by_hand(worlds, int(world), now, before[world], int(steps[world]))
            assert reward[world] == pytest.approx(expected["reward"], abs=1e-5)
            assert not expected["fallen"]
            np.testing.assert_allclose(infos["critic_obs"][world], expected["critic"], atol=2e-4)
            noise = obs[world] - expected["actor"]
            assert np.abs(noise[:9]).max() < 1e-4
            assert 0.003 < np.abs(noise[9:38]).max() < 0.0102
            assert 0.02 < np.abs(noise[38:67]).max() < 0.0502
            assert np.abs(noise[67:]).max() < 2e-4
            compared += 1
        before, steps = np.where(ended[:, None], 0.0, actions), np.where(ended, 0, steps)
    assert compared > 500
    assert len(set(steps.tolist())) > 1, "some have started anew meanwhile"


@pytest.mark.parametrize(
    ("height", "tilt", "falls"),
    [(0.79, 0.0, False), (0.44, 0.0, True), (2.0, 0.88, False), (2.0, 0.98, True)],
)
def test_what_lies_or_tilts_too_far_has_fallen(
    worlds: Walking, height: float, tilt: float, falls: bool
) -> None:
    """The limit is where the cosine of the tilt is 0.6, at 0.927 rad."""
    worlds.reset(seed=0)
    every = np.arange(16, dtype=np.int32)
    qpos = np.tile(worlds.model.qpos0, (16, 1))
    qpos[:, 2] = height
    qpos[:, 3:7] = np.cos(tilt / 2), np.sin(tilt / 2), 0.0, 0.0
    worlds.set_state(every, qpos, np.zeros((16, 35)))
    gravity = walking.gravity_in_body(worlds.qpos[:, 3:7])
    assert walking.fallen(worlds.qpos[:, 2], gravity).tolist() == [falls] * 16
    assert by_hand(worlds, 0, np.zeros(29), np.zeros(29), 0)["fallen"] == falls


def test_random_actions_stay_finite_and_runs_repeat(worlds: Walking, robot_files: Path) -> None:
    again = Walking(WalkingOptions(scene=str(robot_files / "scene.xml")), 16, seed=3)
    rng = np.random.default_rng(1)
    first = [env.reset(seed=7)[0] for env in (worlds, again)]
    assert first[0].shape == (16, walking.OBS_SIZE) == (16, 100)
    fallen = 0
    for _ in range(300):
        actions = rng.uniform(-2, 2, (16, 29)).astype(np.float32)
        (obs, reward, terminated, _, infos), repeated = (env.step(actions) for env in (worlds, again))
        assert infos["critic_obs"].shape == (16, walking.CRITIC_OBS_SIZE) == (16, 103)
        assert np.isfinite(obs).all()
        assert np.isfinite(reward).all()
        np.testing.assert_array_equal(obs, repeated[0])
        fallen += int(terminated.sum())
    assert worlds.nonfinite_count == 0
    assert 10 < fallen < 300, "episodes end, and are not over at once"
    again.close()


def test_an_episode_is_ten_seconds_and_actions_move_the_targets(worlds: Walking) -> None:
    assert worlds.env_spec.max_episode_steps == 500
    assert worlds.env_spec.control_dt == pytest.approx(0.02)
    assert (worlds.env_spec.action_low[0], worlds.env_spec.action_high[28]) == (-2.0, 2.0)
    worlds.reset(seed=0)
    worlds.step(np.full((16, 29), 2.0, np.float32))
    np.testing.assert_allclose(worlds.ctrl, np.tile(robot.home_pose(), (16, 1)) + 0.5, atol=1e-6)


def test_what_runs_in_motrixlabs_environment_imports_nothing_of_ours() -> None:
    scripts = list((catalogue.HERE / "native").glob("*.py"))
    assert len(scripts) == 4
    for path in scripts:
        found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        assert {"tests", "topology", "transport", "workers", "mujoco"}.isdisjoint(found), path
    shared = (catalogue.HERE / "native" / "walking.py").read_text()
    assert re.findall(r"^(?:from|import) (\w+)", shared, re.MULTILINE) == ["__future__", "numpy"]
