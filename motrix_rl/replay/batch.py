"""What replay takes in and gives out."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class ShardLike(Protocol):
    """One vector step of `num_envs` environments, as numpy arrays or tensors.

    `obs [E, O]`, `critic_obs [E, C] | None`, `action [E, A]`, `reward [E]` float32; `terminated`,
    `truncated`, `cut` `[E]` uint8. Of `final_index [>= num_final]`, `final_obs`, `final_critic_obs` the
    first `num_final` rows hold the environment index (within the shard) and the last observation of every
    episode that ended here.
    """

    @property
    def num_envs(self) -> int: ...
    @property
    def num_final(self) -> int: ...
    @property
    def obs(self) -> Any: ...
    @property
    def critic_obs(self) -> Any: ...
    @property
    def action(self) -> Any: ...
    @property
    def reward(self) -> Any: ...
    @property
    def terminated(self) -> Any: ...
    @property
    def truncated(self) -> Any: ...
    @property
    def cut(self) -> Any: ...
    @property
    def final_index(self) -> Any: ...
    @property
    def final_obs(self) -> Any: ...
    @property
    def final_critic_obs(self) -> Any: ...


@dataclass
class Batch:
    """Sampled n-step transitions. Tensors are reused by the next `sample(out=batch)`.

    Attributes:
        observations: `[2, B, O]` float32: where each window starts, and what its target looks at. One
            tensor, so that both are gathered and normalised at once, by the same statistics.
        critic_observations: `[2, B, C]` float32, or None where critics see what the actor sees.
        action: `[B, A]` float32, as the environment got it.
        reward: `[B]` float32, raw: `sum_k gamma^k r_k` over the window.
        discount: `[B]` float32, gamma to the number of rewards in the window.
        bootstrap: `[B]` float32, 0 where the window ended in a terminated row, else 1.
        weight: `[B]` float32, 0 where the window starts on a cut row (nothing is known of its outcome), else
            1.
    """

    observations: Tensor
    critic_observations: Tensor | None
    action: Tensor
    reward: Tensor
    discount: Tensor
    bootstrap: Tensor
    weight: Tensor

    @property
    def obs(self) -> Tensor:
        """Observation at the window's start `[B, O]`."""
        return self.observations[0]

    @property
    def next_obs(self) -> Tensor:
        """Observation the target bootstraps from `[B, O]`."""
        return self.observations[1]

    @property
    def critic_obs(self) -> Tensor | None:
        """Critic's observation at the window's start `[B, C]`, if it has its own."""
        return None if self.critic_observations is None else self.critic_observations[0]

    @property
    def next_critic_obs(self) -> Tensor | None:
        """Critic's observation the target bootstraps from `[B, C]`, if it has its own."""
        return None if self.critic_observations is None else self.critic_observations[1]

    @property
    def size(self) -> int:
        """Number of transitions B."""
        return self.action.shape[0]

    def zero_(self) -> Batch:
        """Makes every element 0, weights too, and returns itself."""
        for tensor in vars(self).values():
            if tensor is not None:
                tensor.zero_()
        return self

    def clone(self) -> Batch:
        """The same in other memory."""
        return copy.deepcopy(self)

    def copy_(self, other: Batch) -> None:
        """Takes the values of another one of the same sizes."""
        for name, tensor in vars(self).items():
            if tensor is not None:
                tensor.copy_(getattr(other, name))

    @classmethod
    def allocate(
        cls,
        batch_size: int,
        obs_dim: int,
        action_dim: int,
        critic_obs_dim: int | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """Uninitialised storage for `batch_size` transitions."""

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=device)

        return cls(
            observations=empty(2, batch_size, obs_dim),
            critic_observations=None if critic_obs_dim is None else empty(2, batch_size, critic_obs_dim),
            action=empty(batch_size, action_dim),
            reward=empty(batch_size),
            discount=empty(batch_size),
            bootstrap=empty(batch_size),
            weight=empty(batch_size),
        )
