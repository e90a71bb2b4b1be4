"""`inverted-double-pendulum`: balance two links on a cart; Gymnasium's InvertedDoublePendulum-v5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import InvertedDoublePendulumOptions


class InvertedDoublePendulum(MujocoBatchEnv):
    """Observation: cart position, sines, cosines, velocities, the force that holds the cart on its rail."""

    Options = InvertedDoublePendulumOptions
    options: InvertedDoublePendulumOptions

    def model_path(self) -> Path:
        return find_model(self.options.xml_file)

    def obs_size(self) -> int:
        return 9

    def setup(self) -> None:
        self._sites: Float64 = self.batch.bind("site_xpos")
        self._constraint: Float64 = self.batch.bind("qfrc_constraint")

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.options.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.normal(worlds, self.model.nv, scale)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        obs[rows, 0] = self.qpos[rows, 0]
        obs[rows, 1:3] = np.sin(self.qpos[rows, 1:])
        obs[rows, 3:5] = np.cos(self.qpos[rows, 1:])
        obs[rows, 5:8] = np.clip(self.qvel[rows], -10, 10)
        obs[rows, 8] = np.clip(self._constraint[rows, 0], -10, 10)

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        x, height = self._sites[:, 0, 0], self._sites[:, 0, 2]
        fallen = height <= 1
        distance = 0.01 * np.square(x) + np.square(height - 2)
        motion = 1e-3 * np.square(self.qvel[:, 1]) + 5e-3 * np.square(self.qvel[:, 2])
        reward[:] = self.options.healthy_reward * ~fallen - distance - motion
        terminated[:] = fallen
