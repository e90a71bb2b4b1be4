"""Options of the MuJoCo tasks, named as in the constructors of Gymnasium's v5 environments.

Loads neither mujoco, gymnasium nor torch, so that a configuration is checked in milliseconds.
"""

from __future__ import annotations

from pydantic import Field

from motrix_rl.envs.options import EnvOptions, NonNegative, Range

_INF = float("inf")

_XML = (
    "MJCF file: a name within the assets of the gymnasium package, or a path that begins with '/', '.' or '~'"
)
_SKIP = "simulation steps in a control step"
_NOISE = "scale of the random offset of the initial positions and velocities"
_EXCLUDE = "leave the horizontal position out of the observation, so that the policy cannot depend on it"
_FORWARD = "weight of the velocity in +x (m/s)"
_CTRL = "weight of the squared control that is taken off the reward"
_CONTACT = "weight of the squared contact forces that is taken off the reward"
_ALIVE = "reward of each step in a healthy state"
_TERMINATE = "end the episode in an unhealthy state"
_HEALTHY_Z = "healthy heights of the torso (m), low and high"
_HEALTHY_PITCH = "healthy pitch of the torso (rad), low and high"
_INCLUDE = "show the policy every body's {}"


class MujocoOptions(EnvOptions):
    """What every task on a MuJoCo model can be told."""

    xml_file: str = Field(description=_XML)
    frame_skip: int = Field(ge=1, description=_SKIP)


class HalfCheetahOptions(MujocoOptions):
    """Options of `halfcheetah` (Gymnasium's HalfCheetah-v5)."""

    xml_file: str = Field("half_cheetah.xml", description=_XML)
    frame_skip: int = Field(5, ge=1, description=_SKIP)
    forward_reward_weight: float = Field(1.0, description=_FORWARD)
    ctrl_cost_weight: float = Field(0.1, description=_CTRL)
    reset_noise_scale: NonNegative = Field(0.1, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)


class HopperOptions(MujocoOptions):
    """Options of `hopper` (Gymnasium's Hopper-v5)."""

    xml_file: str = Field("hopper.xml", description=_XML)
    frame_skip: int = Field(4, ge=1, description=_SKIP)
    forward_reward_weight: float = Field(1.0, description=_FORWARD)
    ctrl_cost_weight: float = Field(1e-3, description=_CTRL)
    healthy_reward: float = Field(1.0, description=_ALIVE)
    terminate_when_unhealthy: bool = Field(True, description=_TERMINATE)
    healthy_state_range: Range = Field(
        (-100.0, 100.0), description="healthy values of every position but x and z and of every velocity"
    )
    healthy_z_range: Range = Field((0.7, _INF), description=_HEALTHY_Z)
    healthy_angle_range: Range = Field((-0.2, 0.2), description=_HEALTHY_PITCH)
    reset_noise_scale: NonNegative = Field(5e-3, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)


class Walker2dOptions(MujocoOptions):
    """Options of `walker2d` (Gymnasium's Walker2d-v5)."""

    xml_file: str = Field("walker2d_v5.xml", description=_XML)
    frame_skip: int = Field(4, ge=1, description=_SKIP)
    forward_reward_weight: float = Field(1.0, description=_FORWARD)
    ctrl_cost_weight: float = Field(1e-3, description=_CTRL)
    healthy_reward: float = Field(1.0, description=_ALIVE)
    terminate_when_unhealthy: bool = Field(True, description=_TERMINATE)
    healthy_z_range: Range = Field((0.8, 2.0), description=_HEALTHY_Z)
    healthy_angle_range: Range = Field((-1.0, 1.0), description=_HEALTHY_PITCH)
    reset_noise_scale: NonNegative = Field(5e-3, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)


class AntOptions(MujocoOptions):
    """Options of `ant` (Gymnasium's Ant-v5)."""

    xml_file: str = Field("ant.xml", description=_XML)
    frame_skip: int = Field(5, ge=1, description=_SKIP)
    forward_reward_weight: float = Field(1.0, description=_FORWARD)
    ctrl_cost_weight: float = Field(0.5, description=_CTRL)
    contact_cost_weight: float = Field(5e-4, description=_CONTACT)
    healthy_reward: float = Field(1.0, description=_ALIVE)
    main_body: int | str = Field(1, description="body whose velocity is rewarded, by number or name")
    terminate_when_unhealthy: bool = Field(True, description=_TERMINATE)
    healthy_z_range: Range = Field((0.2, 1.0), description=_HEALTHY_Z)
    contact_force_range: Range = Field(
        (-1.0, 1.0), description="external forces are clipped to this, in the reward and the observation"
    )
    reset_noise_scale: NonNegative = Field(0.1, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)
    include_cfrc_ext_in_observation: bool = Field(True, description=_INCLUDE.format("external forces"))


class HumanoidOptions(MujocoOptions):
    """Options of `humanoid` (Gymnasium's Humanoid-v5)."""

    xml_file: str = Field("humanoid.xml", description=_XML)
    frame_skip: int = Field(5, ge=1, description=_SKIP)
    forward_reward_weight: float = Field(1.25, description=_FORWARD)
    ctrl_cost_weight: float = Field(0.1, description=_CTRL)
    contact_cost_weight: float = Field(5e-7, description=_CONTACT)
    contact_cost_range: Range = Field((-_INF, 10.0), description="the contact cost is clipped to this")
    healthy_reward: float = Field(5.0, description=_ALIVE)
    terminate_when_unhealthy: bool = Field(True, description=_TERMINATE)
    healthy_z_range: Range = Field((1.0, 2.0), description=_HEALTHY_Z)
    reset_noise_scale: NonNegative = Field(1e-2, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)
    include_cinert_in_observation: bool = Field(True, description=_INCLUDE.format("inertias"))
    include_cvel_in_observation: bool = Field(True, description=_INCLUDE.format("velocities"))
    include_qfrc_actuator_in_observation: bool = Field(
        True, description="show the policy the actuators' forces on the joints"
    )
    include_cfrc_ext_in_observation: bool = Field(True, description=_INCLUDE.format("external forces"))


class InvertedDoublePendulumOptions(MujocoOptions):
    """Options of `inverted-double-pendulum` (Gymnasium's InvertedDoublePendulum-v5)."""

    xml_file: str = Field("inverted_double_pendulum.xml", description=_XML)
    frame_skip: int = Field(5, ge=1, description=_SKIP)
    healthy_reward: float = Field(10.0, description=_ALIVE)
    reset_noise_scale: NonNegative = Field(0.1, description=_NOISE)


class ReacherOptions(MujocoOptions):
    """Options of `reacher` (Gymnasium's Reacher-v5)."""

    max_episode_steps: int | None = Field(
        50, ge=1, description="control steps after which an episode is truncated; null: no limit"
    )
    xml_file: str = Field("reacher.xml", description=_XML)
    frame_skip: int = Field(2, ge=1, description=_SKIP)
    reward_dist_weight: float = Field(1.0, description="weight of the distance (m) taken off the reward")
    reward_control_weight: float = Field(1.0, description=_CTRL)


class CartpoleSwingupOptions(EnvOptions):
    """Options of `cartpole-swingup` (the dynamics and reward of dm_control's cartpole, swing-up)."""

    frame_skip: int = Field(1, ge=1, description=_SKIP + " (10 ms each)")
    reset_noise_scale: NonNegative = Field(
        0.01,
        description="standard deviation of the initial cart position (m), pole angle (rad) and velocities",
    )
