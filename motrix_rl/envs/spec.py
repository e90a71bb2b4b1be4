"""What the rest of the system has to know about an environment before one exists.

Importing this module loads neither mujoco, gymnasium nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvSpec:
    """Sizes and bounds of one world. Plain data: crosses processes, is written to `run.json`.

    Attributes:
        obs_dim: numbers in an observation of the actor.
        action_dim: numbers in an action.
        action_low: lower bound of each action, in the environment's own unit, finite.
        action_high: upper bound of each action, finite, above the lower one.
        critic_obs_dim: numbers in the critic's observation, or None where it sees what the actor sees.
        max_episode_steps: control steps after which an episode is truncated, or None for no limit.
        control_dt: seconds of simulated time in a control step, or None where it is not known.
    """

    obs_dim: int
    action_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    critic_obs_dim: int | None = None
    max_episode_steps: int | None = None
    control_dt: float | None = None

    def __post_init__(self) -> None:
        if self.obs_dim < 1 or self.action_dim < 1:
            raise ValueError(f"an environment needs observations and actions: {self}")
        if len(self.action_low) != self.action_dim or len(self.action_high) != self.action_dim:
            raise ValueError(f"one bound for each of {self.action_dim} actions is needed: {self}")
