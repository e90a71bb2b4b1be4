"""`humanoid`: a humanoid that walks in +x; Gymnasium's Humanoid-v5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import HumanoidOptions
from motrix_rl.envs.mujoco.planar import inside


class Humanoid(MujocoBatchEnv):
    """Observation: positions (without x and y, by default), velocities, and what the options include of
    the bodies' inertias, velocities, actuator forces and external forces.
    """

    Options = HumanoidOptions
    options: HumanoidOptions
    task_arrays = ("_xy_before",)

    def model_path(self) -> Path:
        return find_model(self.options.xml_file)

    def needs_body_forces(self) -> bool:
        return self.options.include_cfrc_ext_in_observation or self.options.contact_cost_weight != 0

    def _included(self) -> list[tuple[str, int, int]]:
        """Returns the derived parts of the observation in order: field, first index, numbers."""
        options, bodies = self.options, self.model.nbody - 1
        parts = (
            (options.include_cinert_in_observation, "cinert", 1, 10 * bodies),
            (options.include_cvel_in_observation, "cvel", 1, 6 * bodies),
            (options.include_qfrc_actuator_in_observation, "qfrc_actuator", 6, self.model.nv - 6),
            (options.include_cfrc_ext_in_observation, "cfrc_ext", 1, 6 * bodies),
        )
        return [(name, first, size) for included, name, first, size in parts if included]

    def obs_size(self) -> int:
        size = self.model.nq + self.model.nv - 2 * self.options.exclude_current_positions_from_observation
        return size + sum(part for _, _, part in self._included())

    def setup(self) -> None:
        self._skipped = 2 * self.options.exclude_current_positions_from_observation
        self._parts = [(self.batch.bind(name)[:, first:], size) for name, first, size in self._included()]
        self._forces: Float64 | None = self.batch.bind("cfrc_ext") if self.needs_body_forces() else None
        self._centres: Float64 = self.batch.bind("xipos")
        self._xy_before = np.zeros((self.num_envs, 2))

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.options.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.uniform(worlds, self.model.nv, -scale, scale)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        at = self.model.nq - self._skipped
        obs[rows, :at] = self.qpos[rows, self._skipped :]
        obs[rows, at : at + self.model.nv] = self.qvel[rows]
        at += self.model.nv
        for field, size in self._parts:
            obs[rows, at : at + size] = field[rows].reshape(-1, size)
            at += size

    def _centre_of_mass(self, rows: Rows) -> Float64:
        """Returns [k, 2], x and y of the centre of mass."""
        mass = self.model.body_mass
        return np.einsum("b,ebj->ej", mass, self._centres[rows, :, :2]) / mass.sum()

    def remember(self, rows: Rows) -> None:
        self._xy_before[rows] = self._centre_of_mass(rows)

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        options = self.options
        healthy = inside(self.qpos[:, 2], options.healthy_z_range)
        velocity = (self._centre_of_mass(slice(None))[:, 0] - self._xy_before[:, 0]) / self.dt
        gain = options.forward_reward_weight * velocity + healthy * options.healthy_reward
        cost = options.ctrl_cost_weight * np.square(self.ctrl).sum(axis=1)
        reward[:] = gain - (cost + self._contact_cost())
        terminated[:] = ~healthy if options.terminate_when_unhealthy else 0

    def _contact_cost(self) -> Float64 | float:
        cost: Float64 | float = 0.0
        if self._forces is not None:
            forces = self._forces.reshape(self.num_envs, -1)
            cost = self.options.contact_cost_weight * np.square(forces).sum(axis=1)
        return np.clip(cost, *self.options.contact_cost_range)
