"""Environments as a third party would have them: registered when this module is imported."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env[Any, Any]):
    """Says which step of which episode it is in; the base of the others."""

    made: ClassVar[int] = 0
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]), dtype=np.float64)

    def __init__(self, length: int = 5, end: str = "terminated") -> None:
        self.length = length
        self.end = end
        self.episode = 0
        self.step_in_episode = 0
        self.actions: list[Any] = []
        self.offset = 0.0

    def observe(self) -> Any:
        return np.array([self.episode, self.step_in_episode, self.offset])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.step_in_episode = 0
        self.offset = float(self.np_random.uniform())
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(np.array(action))
        self.step_in_episode += 1
        over = self.step_in_episode >= self.length
        terminated = over and self.end in ("terminated", "both")
        truncated = over and self.end in ("truncated", "both")
        return self.observe(), float(self.step_in_episode), terminated, truncated, {}


class Nested(Counter):
    """Dict and Tuple observations of several dtypes and shapes."""

    observation_space = spaces.Dict(
        {
            "where": spaces.Box(-1, 1, (2, 2), np.float64),
            "parts": spaces.Tuple((spaces.Box(0, 255, (3,), np.uint8), spaces.Box(-9, 9, (), np.float32))),
        }
    )

    def observe(self) -> Any:
        return {
            "where": np.arange(4.0).reshape(2, 2) / 10 + self.step_in_episode,
            "parts": (np.array([1, 2, 255], np.uint8), np.float32(-self.step_in_episode)),
        }


class Unbounded(Counter):
    """Its second action has no upper bound."""

    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, np.inf]), dtype=np.float64)


class Whole(Counter):
    """Actions are whole numbers in a Box."""

    action_space = spaces.Box(-2, 3, (2, 1), np.int64)


class Words(Counter):
    """A part of its observation is not a Box."""

    observation_space = spaces.Dict({"inner": spaces.Dict({"word": spaces.Discrete(7)})})


class Failing(Counter):
    """Raises, or gives a number that is not finite, at a step of the environment made at a given place."""

    def __init__(self, at_step: int = 3, how: str = "raise", only: int = 1) -> None:
        super().__init__(length=1000)
        self.at_step, self.how = at_step, how
        self.chosen = Failing.made == only
        Failing.made += 1

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.chosen and self.step_in_episode == self.at_step and self.episode == 1:
            if self.how == "raise":
                raise RuntimeError("the gripper is stuck")
            if self.how == "reward":
                reward = float("inf")
            if self.how == "obs":
                obs[1] = np.nan
        return obs, reward, terminated, truncated, info


for _class in (Counter, Nested, Unbounded, Whole, Words, Failing):
    _name = f"Motrix{_class.__name__}-v0"
    if _name not in gymnasium.registry:
        gymnasium.register(_name, entry_point=_class)
