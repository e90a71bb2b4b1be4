"""`halfcheetah`: a planar cheetah that runs in +x; Gymnasium's HalfCheetah-v5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import HalfCheetahOptions


class HalfCheetah(MujocoBatchEnv):
    """Observation: positions (without x, by default), velocities. Never terminates."""

    Options = HalfCheetahOptions
    options: HalfCheetahOptions
    task_arrays = ("_x_before",)

    def model_path(self) -> Path:
        return find_model(self.options.xml_file)

    def obs_size(self) -> int:
        return self.model.nq + self.model.nv - int(self.options.exclude_current_positions_from_observation)

    def setup(self) -> None:
        self._skipped = int(self.options.exclude_current_positions_from_observation)
        self._num_positions = self.model.nq - self._skipped
        self._x_before = np.zeros(self.num_envs)

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.options.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.normal(worlds, self.model.nv, scale)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        obs[rows, : self._num_positions] = self.qpos[rows, self._skipped :]
        obs[rows, self._num_positions :] = self.qvel[rows]

    def remember(self, rows: Rows) -> None:
        self._x_before[rows] = self.qpos[rows, 0]

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        velocity = (self.qpos[:, 0] - self._x_before) / self.dt
        cost = self.options.ctrl_cost_weight * np.square(action).sum(axis=1)
        reward[:] = self.options.forward_reward_weight * velocity - cost
        terminated[:] = 0
