"""What the planar runners (`halfcheetah`, `hopper`, `walker2d`) share."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.mujoco.models import find_model


class _PlanarOptions(Protocol):
    """The options that every planar runner has."""

    xml_file: str
    forward_reward_weight: float
    ctrl_cost_weight: float
    reset_noise_scale: float
    exclude_current_positions_from_observation: bool


class PlanarRunner(MujocoBatchEnv):
    """Observation: positions (without x, by default) and velocities. Reward: velocity in +x less control."""

    task_arrays = ("_x_before",)
    velocity_limit: ClassVar[float | None] = None
    """Velocities are clipped to this in the observation; None: not."""

    @property
    def planar(self) -> _PlanarOptions:
        """The options, as far as all planar runners have them."""
        return self.options  # type: ignore[return-value]

    def model_path(self) -> Path:
        return find_model(self.planar.xml_file)

    def obs_size(self) -> int:
        return self.model.nq + self.model.nv - int(self.planar.exclude_current_positions_from_observation)

    def setup(self) -> None:
        self._skipped = int(self.planar.exclude_current_positions_from_observation)
        self._num_positions = self.model.nq - self._skipped
        self._x_before = np.zeros(self.num_envs)

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.planar.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.uniform(worlds, self.model.nv, -scale, scale)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        velocity = self.qvel[rows]
        if self.velocity_limit is not None:
            velocity = np.clip(velocity, -self.velocity_limit, self.velocity_limit)
        obs[rows, : self._num_positions] = self.qpos[rows, self._skipped :]
        obs[rows, self._num_positions :] = velocity

    def remember(self, rows: Rows) -> None:
        self._x_before[rows] = self.qpos[rows, 0]

    def forward_reward(self) -> Float64:
        """Returns [E], weighted velocity in +x over the control step."""
        return self.planar.forward_reward_weight * ((self.qpos[:, 0] - self._x_before) / self.dt)

    def control_cost(self, action: Float32) -> Float32:
        """Returns [E], weighted squared action; in float32, as Gymnasium computes it."""
        return self.planar.ctrl_cost_weight * np.square(action).sum(axis=1)


def inside(values: Float64, limits: tuple[float, float]) -> NDArray[np.bool_]:
    """Returns whether values lie between two limits, both excluded."""
    return (limits[0] < values) & (values < limits[1])
