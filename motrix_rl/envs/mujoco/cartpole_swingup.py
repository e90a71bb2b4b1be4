"""`cartpole-swingup`: push a cart so that the pole hanging from it swings up and stays up.

Dynamics, time step, start, observation and reward are those of dm_control's cartpole, task "swingup"
(Tassa et al. 2018, "DeepMind Control Suite", section 4), on a model of our own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import OWN_ASSETS
from motrix_rl.envs.mujoco.options import CartpoleSwingupOptions


class CartpoleSwingup(MujocoBatchEnv):
    """Observation: cart position (m), cos and sin of the pole's angle (0 = upright), both velocities."""

    Options = CartpoleSwingupOptions
    options: CartpoleSwingupOptions

    def model_path(self) -> Path:
        return OWN_ASSETS / "cartpole.xml"

    def obs_size(self) -> int:
        return 5

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        noise = self.noise.normal(worlds, 4, self.options.reset_noise_scale)
        return noise[:, :2] + np.array([0.0, np.pi]), noise[:, 2:]

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        obs[rows, 0] = self.qpos[rows, 0]
        obs[rows, 1] = np.cos(self.qpos[rows, 1])
        obs[rows, 2] = np.sin(self.qpos[rows, 1])
        obs[rows, 3:] = self.qvel[rows]

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        upright = (1.0 + np.cos(self.qpos[:, 1])) / 2
        centered = (1.0 + _closeness(self.qpos[:, 0], 2.0)) / 2
        small_control = (4.0 + np.maximum(0.0, 1.0 - np.square(self.ctrl[:, 0]))) / 5
        small_velocity = (1.0 + _closeness(self.qvel[:, 1], 5.0)) / 2
        reward[:] = upright * centered * small_control * small_velocity
        terminated[:] = 0


def _closeness(values: Float64, margin: float) -> Float64:
    """Returns 1 at 0, falling as a Gaussian that passes 0.1 at the margin."""
    return np.power(0.1, np.square(values / margin))
