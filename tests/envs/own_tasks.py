"""Tasks of a user's own, in one file each, as the tests of other folders use them too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.options import EnvOptions


class SliderOptions(EnvOptions):
    """Options of `Slider`."""

    goal: float = Field(1.0, description="where to bring the ball (m)")


class Slider(MujocoBatchEnv):
    """Push a ball to a goal."""

    Options = SliderOptions
    options: SliderOptions

    def model_path(self) -> Path:
        return Path(__file__).with_name("slider.xml")

    def obs_size(self) -> int:
        return 2

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        return self.noise.uniform(worlds, 1, -0.1, 0.1), np.zeros((len(worlds), 1))

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        obs[rows, 0] = self.qpos[rows, 0] - self.options.goal
        obs[rows, 1] = self.qvel[rows, 0]

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        reward[:] = -np.abs(self.qpos[:, 0] - self.options.goal)
        terminated[:] = 0


class SliderWithCritic(Slider):
    """The critic sees the force as well."""

    def critic_obs_size(self) -> int:
        return 3

    def write_critic_obs(self, rows: Rows, critic_obs: Float32) -> None:
        critic_obs[rows, 0] = self.qpos[rows, 0] - self.options.goal
        critic_obs[rows, 1] = self.qvel[rows, 0]
        critic_obs[rows, 2] = self.ctrl[rows, 0]


class Cramped(Slider):
    """MuJoCo raises in a world whose box touches the ground: there is no room for what it computes."""

    def model_path(self) -> Path:
        return Path(__file__).with_name("cramped.xml")


class NotATask:
    """Is no environment."""
