"""The base of every task's options. Loads neither mujoco, gymnasium nor torch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Range = tuple[float, float]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EnvOptions(BaseModel):
    """Options that every task has; a task's own model adds to them, each field with a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_episode_steps: int | None = Field(
        1000, ge=1, description="control steps after which an episode is truncated; null: no limit"
    )


class GymnasiumOptions(EnvOptions):
    """Options of a Gymnasium environment made by name."""

    max_episode_steps: int | None = Field(
        None,
        ge=1,
        description="steps after which an episode is truncated; null: the limit it was registered with",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="arguments for the environment's constructor, such as {g: 9.81}"
    )
