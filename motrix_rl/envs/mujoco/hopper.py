"""`hopper`: a planar one-legged robot that hops in +x; Gymnasium's Hopper-v5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import HopperOptions


class Hopper(MujocoBatchEnv):
    """Observation: positions (without x, by default), velocities clipped to 10. Unhealthy states end it."""

    Options = HopperOptions
    options: HopperOptions
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
        return qpos, self.noise.uniform(worlds, self.model.nv, -scale, scale)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        obs[rows, : self._num_positions] = self.qpos[rows, self._skipped :]
        obs[rows, self._num_positions :] = np.clip(self.qvel[rows], -10, 10)

    def remember(self, rows: Rows) -> None:
        self._x_before[rows] = self.qpos[rows, 0]

    def healthy(self) -> NDArray[np.bool_]:
        """Returns [E], whether height, pitch and the rest of the state are in their ranges, ends excluded."""
        options = self.options
        return (
            _inside(self.qpos[:, 1], options.healthy_z_range)
            & _inside(self.qpos[:, 2], options.healthy_angle_range)
            & _inside(self.qpos[:, 2:], options.healthy_state_range).all(axis=1)
            & _inside(self.qvel, options.healthy_state_range).all(axis=1)
        )

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        velocity = (self.qpos[:, 0] - self._x_before) / self.dt
        healthy = self.healthy()
        cost = self.options.ctrl_cost_weight * np.square(action).sum(axis=1)
        gain = self.options.forward_reward_weight * velocity + healthy * self.options.healthy_reward
        reward[:] = gain - cost
        terminated[:] = ~healthy if self.options.terminate_when_unhealthy else 0


def _inside(values: Float64, limits: tuple[float, float]) -> NDArray[np.bool_]:
    return (limits[0] < values) & (values < limits[1])
