"""`walker2d`: a planar two-legged robot that walks in +x; Gymnasium's Walker2d-v5."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32
from motrix_rl.envs.mujoco.options import Walker2dOptions
from motrix_rl.envs.mujoco.planar import PlanarRunner, inside


class Walker2d(PlanarRunner):
    """Ends in an unhealthy state: height or pitch of the torso out of range."""

    Options = Walker2dOptions
    options: Walker2dOptions
    velocity_limit = 10.0

    def healthy(self) -> NDArray[np.bool_]:
        """Returns [E], whether height and pitch of the torso are in their ranges."""
        return inside(self.qpos[:, 1], self.options.healthy_z_range) & inside(
            self.qpos[:, 2], self.options.healthy_angle_range
        )

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        healthy = self.healthy()
        alive = healthy * self.options.healthy_reward
        reward[:] = self.forward_reward() + alive - self.control_cost(action)
        terminated[:] = ~healthy if self.options.terminate_when_unhealthy else 0
