"""`hopper`: a planar one-legged robot that hops in +x; Gymnasium's Hopper-v5."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32
from motrix_rl.envs.mujoco.options import HopperOptions
from motrix_rl.envs.mujoco.planar import PlanarRunner, inside


class Hopper(PlanarRunner):
    """Ends in an unhealthy state: too low, too much pitch, or any other part of the state out of range."""

    Options = HopperOptions
    options: HopperOptions
    velocity_limit = 10.0

    def healthy(self) -> NDArray[np.bool_]:
        """Returns [E], whether height, pitch and the rest of the state are in their ranges."""
        options = self.options
        return (
            inside(self.qpos[:, 1], options.healthy_z_range)
            & inside(self.qpos[:, 2], options.healthy_angle_range)
            & inside(self.qpos[:, 2:], options.healthy_state_range).all(axis=1)
            & inside(self.qvel, options.healthy_state_range).all(axis=1)
        )

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        healthy = self.healthy()
        alive = healthy * self.options.healthy_reward
        reward[:] = self.forward_reward() + alive - self.control_cost(action)
        terminated[:] = ~healthy if self.options.terminate_when_unhealthy else 0
