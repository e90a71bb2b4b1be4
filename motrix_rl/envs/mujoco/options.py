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
    healthy_angle_range: Range = Field((-0.2, 0.2), description="healthy pitch of the torso (rad)")
    reset_noise_scale: NonNegative = Field(5e-3, description=_NOISE)
    exclude_current_positions_from_observation: bool = Field(True, description=_EXCLUDE)


class CartpoleSwingupOptions(EnvOptions):
    """Options of `cartpole-swingup` (the dynamics and reward of dm_control's cartpole, swing-up)."""

    frame_skip: int = Field(1, ge=1, description=_SKIP + " (10 ms each)")
    reset_noise_scale: NonNegative = Field(
        0.01,
        description="standard deviation of the initial cart position (m), pole angle (rad) and velocities",
    )
