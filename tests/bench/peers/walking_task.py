"""The walking robot as a task of ours: `task=tests.bench.peers.walking_task:Walking/mujoco.fastsac env.scene=PATH`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from motrix_rl.envs.base import Float32, StepBuffers, WorldIds
from motrix_rl.envs.mujoco.base import Float64, MujocoBatchEnv, Rows
from motrix_rl.envs.options import EnvOptions
from motrix_rl.envs.spec import EnvSpec
from tests.bench.peers import robot
from tests.bench.peers.native import walking


class WalkingOptions(EnvOptions):
    """Options of the task."""

    max_episode_steps: int | None = Field(
        round(walking.EPISODE_S / walking.CONTROL_DT), ge=1, description="control steps of an episode"
    )
    frame_skip: int = Field(robot.SUBSTEPS, ge=1, description="simulation steps in a control step")
    scene: str = Field(description="path of the robot on its floor, as `robot.write_robot` writes it")


class Walking(MujocoBatchEnv):
    """The robot follows commanded velocities; the critic also sees how fast it goes, and no noise."""

    Options = WalkingOptions
    options: WalkingOptions
    task_arrays = ("action", "action_before", "command", "phase")

    def model_path(self) -> Path:
        return Path(self.options.scene)

    def obs_size(self) -> int:
        return walking.OBS_SIZE

    def critic_obs_size(self) -> int:
        return walking.CRITIC_OBS_SIZE

    def _make_spec(self) -> EnvSpec:
        bound = (walking.ACTION_LIMIT,) * self.model.nu
        return EnvSpec(
            obs_dim=walking.OBS_SIZE,
            action_dim=self.model.nu,
            action_low=tuple(-limit for limit in bound),
            action_high=bound,
            critic_obs_dim=walking.CRITIC_OBS_SIZE,
            max_episode_steps=self.options.max_episode_steps,
            control_dt=self.dt,
        )

    def setup(self) -> None:
        self.home = np.asarray(robot.home_pose())
        shape = (self.num_envs, walking.JOINTS)
        self.action, self.action_before = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.command = np.zeros((self.num_envs, 3), np.float32)
        self.phase = np.zeros(self.num_envs, np.float32)

    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        drawn = self.noise.uniform(worlds, 2 + walking.JOINTS + 3 + 1, -1.0, 1.0)
        place, angles, command, phase = np.split(drawn, (2, 2 + walking.JOINTS, 5 + walking.JOINTS), axis=1)
        qpos = np.tile(self.model.qpos0, (len(worlds), 1))
        qpos[:, :2] = walking.START_PLACE * place
        qpos[:, 7:] = self.home + walking.START_ANGLES * angles
        self.action[worlds] = self.action_before[worlds] = 0.0
        self.command[worlds] = walking.COMMAND * command
        self.phase[worlds] = np.pi * phase[:, 0]
        return qpos, np.zeros((len(worlds), self.model.nv))

    def _step_worlds(self, action: Float32, out: StepBuffers) -> None:
        self.action_before[:] = self.action
        self.action[:] = action
        # The base steps with what it is given; everything else here reads `self.action`.
        super()._step_worlds((self.home + walking.ACTION_SCALE * action).astype(np.float32), out)

    def write_obs(self, rows: Rows, obs: Float32) -> None:
        turning, velocity, gravity = self._motion(rows)
        noise = self.noise.uniform(self._all_worlds[rows], 2 * walking.JOINTS, -1.0, 1.0)
        obs[rows], self._critic_rows = walking.observations(
            turning,
            velocity,
            gravity,
            self.command[rows],
            self._angles(rows),
            self.qvel[rows, 6:].astype(np.float32),
            self.action[rows],
            walking.legs_phase(self._episode_steps[rows], self.phase[rows]),
            noise.astype(np.float32),
        )

    def write_critic_obs(self, rows: Rows, critic_obs: Float32) -> None:
        critic_obs[rows] = self._critic_rows  # `write_obs` of the same rows comes right before

    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        every = slice(None)
        motion = self._motion(every)
        reward[:] = walking.reward(
            *motion, self.command, self._angles(every), self.action, self.action_before
        )
        terminated[:] = walking.fallen(self.qpos[:, 2], motion[2])

    def _motion(self, rows: Rows) -> tuple[Float32, Float32, Float32]:
        """Angular velocity, velocity and gravity [k, 3] in the base's frame, in which MuJoCo has the first."""
        quaternion = self.qpos[rows, 3:7].astype(np.float32)
        velocity = walking.into_body(quaternion, self.qvel[rows, :3].astype(np.float32))
        turning = self.qvel[rows, 3:6].astype(np.float32)
        return turning, velocity, walking.gravity_in_body(quaternion)

    def _angles(self, rows: Rows) -> Float32:
        return (self.qpos[rows, 7:] - self.home).astype(np.float32)
