"""`halfcheetah`: a planar cheetah that runs in +x; Gymnasium's HalfCheetah-v5."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import Float32, WorldIds
from motrix_rl.envs.mujoco.base import Float64
from motrix_rl.envs.mujoco.options import HalfCheetahOptions
from motrix_rl.envs.mujoco.planar import PlanarRunner


class HalfCheetah(PlanarRunner):
    """Never terminates; starts with normally distributed velocities."""

    Options = HalfCheetahOptions
    options: HalfCheetahOptions

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        scale = self.options.reset_noise_scale
        qpos = self.model.qpos0 + self.noise.uniform(worlds, self.model.nq, -scale, scale)
        return qpos, self.noise.normal(worlds, self.model.nv, scale)

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        reward[:] = self.forward_reward() - self.control_cost(action)
        terminated[:] = 0
