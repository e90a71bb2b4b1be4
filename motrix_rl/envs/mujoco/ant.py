# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""`ant`: a quadruped that runs in +x; Gymnasium's Ant-v5."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import AntOptions
from motrix_rl.errors import UsageError


class Ant(MujocoBatchEnv):
    """Observation: positions (without x and y, by default), velocities, clipped external forces on bodies."""

    Options = AntOptions
    options: AntOptions
    task_arrays = ("_xy_before",)

    def model_path(self) -> Path:
        return find_model(self.options.xml_file)

    def needs_body_forces(self) -> bool:
        return self.options.include_cfrc_ext_in_observation or self.options.contact_cost_weight != 0

    def obs_size(self) -> int:
        size = self.model.nq + self.model.nv - 2 * self.options.exclude_current_positions_from_observation
        return size + 6 * (self.model.nbody - 1) * self.options.include_cfrc_ext_in_observation

    def setup(self) -> None:
        self._body = self._main_body()
        self._skipped = 2 * self.options.exclude_current_positions_from_observation
        self._xpos: Float64 = self.batch.bind("xpos")
        self._forces: Float64 | None = self.batch.bind("cfrc_ext") if self.needs_body_forces() else None
        self._xy_before = np.zeros((self.num_envs, 2))

    def _main_body(self) -> int:
        name = self.options.main_body
        if isinstance(name, str):
            body = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_BODY, name)
        else:
            body = name
        if not 0 <= body < self.model.nbody:
            raise UsageError(f"env.main_body={name}: the model has no such body ({self.model.nbody} bodies)")
        return body

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.options.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.normal(worlds, self.model.nv, scale)

    def _clipped_forces(self, rows: Rows) -> Float64:
        assert self._forces is not None
        return np.clip(self._forces[rows], *self.options.contact_force_range)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        positions = self.model.nq - self._skipped
        velocities = positions + self.model.nv
        obs[rows, :positions] = self.qpos[rows, self._skipped :]
        obs[rows, positions:velocities] = self.qvel[rows]
        if self.options.include_cfrc_ext_in_observation:
            forces = self._clipped_forces(rows)[:, 1:]
            obs[rows, velocities:] = forces.reshape(len(forces), -1)

    def remember(self, rows: Rows) -> None:
        self._xy_before[rows] = self._xpos[rows, self._body, :2]

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        options = self.options
        low, high = options.healthy_z_range
        healthy = (low <= self.qpos[:, 2]) & (self.qpos[:, 2] <= high)
        velocity = (self._xpos[:, self._body, 0] - self._xy_before[:, 0]) / self.dt
        gain = velocity * options.forward_reward_weight + healthy * options.healthy_reward
        cost = options.ctrl_cost_weight * np.square(action).sum(axis=1)
        if options.contact_cost_weight != 0:
            forces = self._clipped_forces(slice(None)).reshape(self.num_envs, -1)
            cost = cost + options.contact_cost_weight * np.square(forces).sum(axis=1)
        reward[:] = gain - cost
        terminated[:] = ~healthy if options.terminate_when_unhealthy else 0
