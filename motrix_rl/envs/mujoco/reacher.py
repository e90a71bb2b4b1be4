# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""`reacher`: bring the tip of a two-link arm to a target; Gymnasium's Reacher-v5."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model
from motrix_rl.envs.mujoco.options import ReacherOptions
from motrix_rl.errors import UsageError

_TARGET_RADIUS = 0.2
"""Targets are uniform over a disc of this radius (m)."""


class Reacher(MujocoBatchEnv):
    """Observation: cosines and sines of the joints, target, joint velocities, tip relative to the target."""

    Options = ReacherOptions
    options: ReacherOptions

    def model_path(self) -> Path:
        return find_model(self.options.xml_file)

    def obs_size(self) -> int:
        return 4 + (self.model.nq - 2) + 2 + 2

    def setup(self) -> None:
        self._xpos: Float64 = self.batch.bind("xpos")
        self._tip, self._target = (self._body(name) for name in ("fingertip", "target"))

    def _body(self, name: str) -> int:
        body = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_BODY, name)
        if body < 0:
            raise UsageError(f"env.xml_file={self.options.xml_file}: the model has no body {name!r}")
        return body

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -0.1, 0.1)
        # Uniform over the disc in closed form; a rejection loop would draw an uncertain number of times.
        unit = self.noise.uniform(worlds, 2)
        radius, angle = _TARGET_RADIUS * np.sqrt(unit[:, 0]), 2 * np.pi * unit[:, 1]
        qpos[:, -2] = radius * np.cos(angle)
        qpos[:, -1] = radius * np.sin(angle)
        qvel = self.noise.uniform(worlds, self.model.nv, -0.005, 0.005)
        qvel[:, -2:] = 0
        return qpos, qvel

    def _offset(self, rows: Rows) -> Float64:
        """Returns [k, 3], from the target to the tip of the arm (m)."""
        return self._xpos[rows, self._tip] - self._xpos[rows, self._target]

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        size = self.model.nq + 2
        obs[rows, 0:2] = np.cos(self.qpos[rows, :2])
        obs[rows, 2:4] = np.sin(self.qpos[rows, :2])
        obs[rows, 4:size] = self.qpos[rows, 2:]
        obs[rows, size : size + 2] = self.qvel[rows, :2]
        obs[rows, size + 2 :] = self._offset(rows)[:, :2]

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        distance = np.linalg.norm(self._offset(slice(None)), axis=1)
        effort = np.square(action).sum(axis=1)
        options = self.options
        reward[:] = -distance * options.reward_dist_weight - effort * options.reward_control_weight
        terminated[:] = 0
