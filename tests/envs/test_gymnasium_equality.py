"""Standard tasks against Gymnasium's own environments, step by step (E1)."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from motrix_rl.envs.mujoco.models import gymnasium_assets
from motrix_rl.tasks.registry import env_spec, task_options_model
from tests.envs._reference import GYMNASIUM_IDS, compare, make_theirs

# Every option that changes the task, away from its default.
CHANGED: dict[str, dict[str, Any]] = {
    "halfcheetah": {
        "frame_skip": 3,
        "forward_reward_weight": 2.5,
        "ctrl_cost_weight": 0.7,
        "exclude_current_positions_from_observation": False,
        "max_episode_steps": 37,
    },
    "hopper": {
        "frame_skip": 2,
        "forward_reward_weight": 0.5,
        "ctrl_cost_weight": 0.2,
        "healthy_reward": 3.0,
        "healthy_state_range": (-5.0, 5.0),
        "healthy_z_range": (0.9, 1.4),
        "healthy_angle_range": (-0.1, 0.3),
        "exclude_current_positions_from_observation": False,
        "max_episode_steps": 23,
    },
    "walker2d": {
        "frame_skip": 2,
        "forward_reward_weight": 0.5,
        "ctrl_cost_weight": 0.2,
        "healthy_reward": 3.0,
        "terminate_when_unhealthy": False,
        "healthy_z_range": (1.1, 1.3),
        "healthy_angle_range": (-0.1, 0.3),
        "exclude_current_positions_from_observation": False,
        "max_episode_steps": 31,
    },
    "ant": {
        "frame_skip": 3,
        "forward_reward_weight": 2.0,
        "ctrl_cost_weight": 0.1,
        "contact_cost_weight": 0.01,
        "healthy_reward": 0.3,
        "main_body": "aux_1",
        "healthy_z_range": (0.5, 0.9),
        "contact_force_range": (-3.0, 7.0),
        "exclude_current_positions_from_observation": False,
        "max_episode_steps": 29,
    },
    "humanoid": {
        "frame_skip": 2,
        "forward_reward_weight": 2.0,
        "ctrl_cost_weight": 0.3,
        "contact_cost_weight": 1e-4,
        "contact_cost_range": (0.2, 3.0),
        "healthy_reward": 0.7,
        "healthy_z_range": (1.3, 1.5),
        "exclude_current_positions_from_observation": False,
        "include_cvel_in_observation": False,
        "max_episode_steps": 29,
    },
    "inverted-double-pendulum": {
        "frame_skip": 3,
        "healthy_reward": 2.0,
        "max_episode_steps": 9,
    },
    "reacher": {
        "frame_skip": 3,
        "reward_dist_weight": 2.0,
        "reward_control_weight": 0.1,
        "max_episode_steps": 17,
    },
}


@pytest.mark.covers("E1")
@pytest.mark.parametrize("task", sorted(GYMNASIUM_IDS))
def test_equals_gymnasium_from_random_states(task: str) -> None:
    seen = compare(task, None, num_envs=4, steps=150, seed=1, spread=True)
    assert seen.cut == 0


# Switches that leave parts out, and with them the pass that computes forces.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "ant": {"include_cfrc_ext_in_observation": False},
    "ant without forces": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
    "humanoid": {
        "include_cinert_in_observation": False,
        "include_qfrc_actuator_in_observation": False,
        "include_cfrc_ext_in_observation": False,
        "terminate_when_unhealthy": False,
    },
    "humanoid without forces": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
    "hopper": {"terminate_when_unhealthy": False},
    # Wide enough but for the range of the rest of the state, which otherwise never decides.
    "hopper by its state": {
        "healthy_state_range": (-2.0, 2.0),
        "healthy_z_range": (0.0, 9.0),
        "healthy_angle_range": (-9.0, 9.0),
    },
}


@pytest.mark.covers("E1")
@pytest.mark.parametrize("case", sorted(LEFT_OUT))
def test_equals_gymnasium_with_parts_left_out(case: str) -> None:
    compare(case.split()[0], LEFT_OUT[case], num_envs=3, steps=60, seed=3, spread=False)


@pytest.mark.covers("E1")
@pytest.mark.parametrize("task", sorted(GYMNASIUM_IDS))
def test_options_are_those_of_gymnasiums_constructor(task: str) -> None:
    theirs = inspect.signature(type(make_theirs(task).unwrapped).__init__).parameters
    ours = task_options_model(task, "mujoco").model_fields
    drawing = {"self", "default_camera_config", "kwargs"}
    assert set(ours) - {"max_episode_steps"} == set(theirs) - drawing
    assert {name: ours[name].default for name in theirs if name in ours} == {
        name: parameter.default for name, parameter in theirs.items() if name in ours
    }
    limit = gymnasium.spec(GYMNASIUM_IDS[task]).max_episode_steps
    assert ours["max_episode_steps"].default == limit


@pytest.mark.covers("E1")
def test_equals_gymnasium_with_a_model_of_ones_own(tmp_path: Path) -> None:
    model = tmp_path / "heavy.xml"
    text = (gymnasium_assets() / "hopper.xml").read_text()
    model.write_text(
        text.replace('timestep="0.002"', 'timestep="0.004"').replace('gear="200.0"', 'gear="90"')
    )
    options = {"xml_file": str(model), "max_episode_steps": 40}
    assert env_spec("hopper", "mujoco", options).control_dt == pytest.approx(0.016)
    compare("hopper", options, num_envs=2, steps=60, seed=5, spread=False)


@pytest.mark.covers("E1")
@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(GYMNASIUM_IDS))
def test_equals_gymnasium_for_a_thousand_steps(task: str) -> None:
    compare(task, None, num_envs=20, steps=1000, seed=4, spread=True)


@pytest.mark.covers("E1")
@pytest.mark.parametrize("task", sorted(GYMNASIUM_IDS))
def test_equals_gymnasium_with_changed_options(task: str) -> None:
    seen = compare(task, CHANGED[task], num_envs=4, steps=100, seed=2, spread=False)
    assert seen.truncated + seen.terminated >= 4, "episodes have to end for their ends to be compared"
