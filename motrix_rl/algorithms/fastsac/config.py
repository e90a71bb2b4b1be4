"""Every setting of FastSAC, with its default, unit and meaning. Imports no torch."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FastSACConfig(BaseModel):
    """Settings of one FastSAC agent.

    The defaults suit unit-box MuJoCo tasks on a few CPU cores; recipes of robots set their own. Sizes are
    global: `batch_size`, `buffer_size` and `learning_starts` count over all ranks together.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Updates
    num_updates: int = Field(
        4, ge=1, description="Critic updates per generation (one step of all environments)."
    )
    batch_size: int = Field(256, ge=1, description="Transitions in one update, over all learners together.")
    policy_frequency: int = Field(
        2,
        ge=1,
        description="Critic updates per actor update, counted over the whole run; 1 trains both each time.",
    )
    gamma: float = Field(0.99, ge=0.0, le=1.0, description="Discount per environment step.")
    n_step: int = Field(1, ge=1, le=64, description="Rewards summed before the target bootstraps, in steps.")
    tau: float = Field(
        0.01,
        gt=0.0,
        le=1.0,
        description="Share of the critic taken into the target critic after every critic update.",
    )
    learning_starts: int = Field(
        5_000, ge=0, description="Transitions collected with uniform random actions before learning, in all."
    )
    buffer_size: int = Field(
        1_000_000, ge=1, description="Transitions the replay holds, over all learners together."
    )

    # Networks
    actor_hidden_dim: int = Field(
        256, ge=4, multiple_of=4, description="Width H of the actor; its layers are H, H/2 and H/4."
    )
    critic_hidden_dim: int = Field(
        256, ge=4, multiple_of=4, description="Width H of each critic; its layers are H, H/2 and H/4."
    )
    num_q_networks: int = Field(2, ge=1, le=16, description="Critics in the ensemble.")
    num_atoms: int = Field(51, ge=2, description="Atoms of the return distribution.")
    v_min: float = Field(-5.0, description="Lowest atom, in units of (scaled) discounted return.")
    v_max: float = Field(5.0, description="Highest atom, in units of (scaled) discounted return.")
    log_std_min: float = Field(-5.0, description="Lowest log standard deviation of the policy, before tanh.")
    log_std_max: float = Field(2.0, description="Highest log standard deviation of the policy, before tanh.")

    # Targets
    critic_target: Literal["own", "min", "mean"] = Field(
        "own",
        description="Distribution a critic regresses on: its own target's, that of the target with the "
        "lowest mean (decided per sample), or the average of all.",
    )
    actor_q: Literal["mean", "min"] = Field(
        "mean", description="How the actor's loss combines the critics' values: their mean or their minimum."
    )

    # Optimisers
    actor_learning_rate: float = Field(3e-4, gt=0.0, description="Learning rate of the actor.")
    critic_learning_rate: float = Field(3e-4, gt=0.0, description="Learning rate of the critics.")
    alpha_learning_rate: float = Field(
        3e-4, gt=0.0, description="Learning rate of log alpha (the temperature)."
    )
    weight_decay: float = Field(
        1e-3, ge=0.0, description="Decoupled weight decay of actor and critics; log alpha has none."
    )
    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0, description="Decay of Adam's first moment.")
    adam_beta2: float = Field(0.95, ge=0.0, lt=1.0, description="Decay of Adam's second moment.")
    max_grad_norm: float = Field(
        0.0,
        ge=0.0,
        description="Gradients longer than this are shortened to it, after the reduction; 0 = off.",
    )

    # Entropy
    alpha_init: float = Field(0.01, gt=0.0, description="Temperature at the start.")
    use_autotune: bool = Field(
        True, description="Tune the temperature towards the target entropy; false keeps it."
    )
    target_entropy_ratio: float = Field(
        0.5,
        description="Target entropy = -ratio * action_dim, in the environment's (scaled) action space. Used "
        "when target_entropy_std is null. The same ratio means other noise where actions have another scale.",
    )
    target_entropy_std: float | None = Field(
        0.15,
        gt=0.0,
        description="Target entropy as that of a normal with this standard deviation in the unit box, "
        "whatever the scale of the actions; null uses target_entropy_ratio.",
    )

    # Scaling
    obs_normalization: bool = Field(
        True, description="Normalise observations by their running mean and deviation."
    )
    reward_scaling: bool = Field(
        True,
        description="Divide rewards by the running return's deviation (and keep its maximum within the "
        "support), so that one [v_min, v_max] serves every task.",
    )

    # Speed
    amp: bool = Field(False, description="Automatic mixed precision in the networks.")
    amp_dtype: Literal["bf16", "fp16"] = Field("bf16", description="Precision used when amp is on.")
    compile: bool = Field(
        False,
        description="Compile the losses with torch.compile; without a working compiler they run eagerly.",
    )
    cuda_graphs: bool = Field(
        False,
        description="Replay updates as CUDA graphs: one launch for some hundred kernels. Nothing on CPUs.",
    )

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if not (math.isfinite(self.v_min) and math.isfinite(self.v_max)) or self.v_min >= self.v_max:
            raise ValueError(f"v_min ({self.v_min}) must be below v_max ({self.v_max})")
        if self.reward_scaling and not self.v_min < 0.0 < self.v_max:
            raise ValueError(
                f"reward_scaling needs a support around zero, got v_min={self.v_min}, v_max={self.v_max}; "
                "use v_min < 0 < v_max or reward_scaling=false"
            )
        if self.log_std_min >= self.log_std_max:
            raise ValueError(
                f"log_std_min ({self.log_std_min}) must be below log_std_max ({self.log_std_max})"
            )
        return self
