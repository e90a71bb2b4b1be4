"""The walking robot as a task of MotrixLab's, in its own simulator. Runs in MotrixLab's environment alone.

Quaternions are there [k, 4] with the scalar last, and velocities of a link in the frame of the world.
"""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
import walking
from motrix_env_core import registry
from motrix_env_core.array.env import FinalObs, NpObs
from motrix_env_core.base import ObsSpace, SimCfg
from motrix_env_core.config import configclass
from motrix_env_core.config.scene import FlatTerrainCfg, MjcfFileCfg, RobotCfg, SceneCfg, SceneObjsCfg
from motrix_env_core.direct.env import DirectEnv, DirectEnvCfg
from motrix_env_core.sim import (
    BodyAngularVelocityWrite,
    BodyLinearVelocityWrite,
    BodyPositionWrite,
    BodyRotationWrite,
    JointPositionQuery,
    JointPositionWrite,
    JointVelocityQuery,
    JointVelocityWrite,
    LinkAngularVelocityQuery,
    LinkLinearVelocityQuery,
    LinkPositionQuery,
    LinkQuaternionQuery,
)
from motrix_env_core.sim.write import CtrlTargetsWrite

TASK = "peer-walking"


@configclass
class Objects(SceneObjsCfg):
    """What is in the world: the floor, and the robot that `register` adds."""

    floor: FlatTerrainCfg = FlatTerrainCfg()


@configclass
class WalkingCfg(DirectEnvCfg):
    """The task's own settings; `robot_directory` is what `robot.write_robot` has written."""

    max_episode_seconds: float = walking.EPISODE_S
    ctrl_dt: float = walking.CONTROL_DT
    robot_directory: str = ""


def register(directory: Path) -> None:
    """Makes the task known under `TASK`."""
    facts = json.loads((directory / "robot.json").read_text())

    def config() -> WalkingCfg:
        model = MjcfFileCfg(file=str(directory / "robot.xml"))
        return WalkingCfg(
            scene=SceneCfg(objs=Objects(robot=RobotCfg(model=model, base_link_name=facts["base"]))),
            sim=SimCfg(
                dt=facts["physics_dt"],
                solver_iterations=facts["iterations"],
                solver_tolerance=facts["tolerance"],
            ),
            robot_directory=str(directory),
        )

    registry.register_env_config(TASK, config, cfg_type=WalkingCfg)
    registry.register_env(TASK, Walking)


class Walking(DirectEnv[WalkingCfg]):
    """The robot follows commanded velocities; the critic also sees how fast it goes, and no noise."""

    def __init__(self, cfg, num_envs=1, backend=None):
        super().__init__(cfg, num_envs, backend=backend)
        facts = json.loads((Path(cfg.robot_directory) / "robot.json").read_text())
        base, self._height = facts["base"], facts["height"]
        joints = tuple(actuator.target_name for actuator in self.sim.compile_model({}).actuators)
        if len(joints) != walking.JOINTS:
            raise ValueError(f"the simulator sees {len(joints)} actuators instead of {walking.JOINTS}")
        self._home = np.array([facts["home"][joint] for joint in joints], np.float32)
        self._reads = self.sim.compile_reads(
            {
                "quaternion": LinkQuaternionQuery(link=base),
                "place": LinkPositionQuery(link=base),
                "velocity": LinkLinearVelocityQuery(link=base),
                "turning": LinkAngularVelocityQuery(link=base),
                "angles": JointPositionQuery(joints=joints),
                "joint_velocity": JointVelocityQuery(joints=joints),
            }
        )
        self._targets = self.sim.compile_writes({"targets": CtrlTargetsWrite()})
        self._starts = self.sim.compile_writes(
            {
                "place": BodyPositionWrite((base,)),
                "quaternion": BodyRotationWrite((base,)),
                "velocity": BodyLinearVelocityWrite((base,)),
                "turning": BodyAngularVelocityWrite((base,)),
                "angles": JointPositionWrite(joints),
                "joint_velocity": JointVelocityWrite(joints),
            },
            reset=True,
        )
        self._action = np.zeros((num_envs, walking.JOINTS), np.float32)
        self._action_before = np.zeros_like(self._action)
        self._command = np.zeros((num_envs, 3), np.float32)
        self._phase = np.zeros(num_envs, np.float32)
        self._random = np.random.default_rng(np.random.randint(2**31))

    @property
    def observation_space(self):
        def box(size):
            return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

        return ObsSpace(policy=box(walking.OBS_SIZE), value=box(walking.CRITIC_OBS_SIZE))

    @property
    def action_space(self):
        limit = walking.ACTION_LIMIT
        return gymnasium.spaces.Box(-limit, limit, (walking.JOINTS,), np.float32)

    def apply_action(self, actions, state):
        self._action_before, self._action = self._action, np.array(actions, np.float32)
        self._targets.buffer("targets")[:] = self._home + walking.ACTION_SCALE * self._action
        self._targets.execute()
        return state

    def compute_transition(self, state):
        self._reads.execute()
        motion = self._motion(slice(None))
        angles = self._reads["angles"] - self._home
        state.reward[:] = walking.reward(*motion, self._command, angles, self._action, self._action_before)
        state.terminated[:] = walking.fallen(self._reads["place"][:, 2], motion[2])
        return state

    def compute_observation(self, state):
        return state.replace(obs=self._observed(slice(None), state))

    def _capture_final_obs(self, env_ids):
        return FinalObs(env_ids=env_ids.copy(), obs=self._observed(env_ids, self._state))

    def _observed(self, rows, state):
        turning, velocity, gravity = self._motion(rows)
        joint_velocity = self._reads["joint_velocity"][rows]
        noise = self._random.random((len(turning), 2 * walking.JOINTS), np.float32) * 2.0 - 1.0
        actor, critic = walking.observations(
            turning,
            velocity,
            gravity,
            self._command[rows],
            self._reads["angles"][rows] - self._home,
            joint_velocity,
            self._action[rows],
            walking.legs_phase(state.episode_steps[rows], self._phase[rows]),
            noise,
        )
        return NpObs(policy=actor, value=critic)

    def _motion(self, rows):
        """Angular velocity, velocity and gravity [k, 3] in the base's frame."""
        quaternion = self._reads["quaternion"][rows][:, [3, 0, 1, 2]]
        turning = walking.into_body(quaternion, self._reads["turning"][rows])
        velocity = walking.into_body(quaternion, self._reads["velocity"][rows])
        return turning, velocity, walking.gravity_in_body(quaternion)

    def reset(self, env_ids):
        count, starts = len(env_ids), self._starts

        def uniform(size, half):
            return self._random.uniform(-half, half, (count, size))

        place = np.full((count, 3), self._height)
        place[:, :2] = uniform(2, walking.START_PLACE)
        starts.buffer("place")[env_ids, 0] = place
        starts.buffer("quaternion")[env_ids, 0] = (0.0, 0.0, 0.0, 1.0)
        starts.buffer("velocity")[env_ids] = 0.0
        starts.buffer("turning")[env_ids] = 0.0
        starts.buffer("angles")[env_ids] = self._home + uniform(walking.JOINTS, walking.START_ANGLES)
        starts.buffer("joint_velocity")[env_ids] = 0.0
        starts.execute(env_ids)
        self._action[env_ids] = self._action_before[env_ids] = 0.0
        self._command[env_ids] = uniform(3, walking.COMMAND)
        self._phase[env_ids] = uniform(1, np.pi)[:, 0]
        self._reads.execute(env_ids)
