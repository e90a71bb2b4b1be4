"""The agent's running statistics, merged over ranks at one moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac.flat import Reducer
from motrix_rl.algorithms.fastsac.objectives import Inputs
from motrix_rl.normalization.running import RewardScaler, RunningMeanStd, as_tensor
from motrix_rl.replay.batch import Batch


class AgentStatistics:
    """Normalisers of observations and scale of rewards; each is None where it is off.

    Args:
        obs: Normaliser of the actor's observation.
        critic_obs: Normaliser of the critics' own observation.
        reward: Scale of rewards.
        device: Where they lie.
        dtype: Type of what they prepare, that of the networks.
    """

    def __init__(
        self,
        obs: RunningMeanStd | None,
        critic_obs: RunningMeanStd | None,
        reward: RewardScaler | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.obs, self.critic_obs, self.reward = obs, critic_obs, reward
        self.device, self.dtype = device, dtype
        named = {"obs_norm": obs, "critic_obs_norm": critic_obs, "reward_scaler": reward}
        self.parts = {name: part for name, part in named.items() if part is not None}

    @torch.no_grad()
    def observe(
        self,
        obs: Tensor | np.ndarray,
        critic_obs: Tensor | np.ndarray | None,
        reward: Tensor | np.ndarray | None,
        terminated: Tensor | np.ndarray | None,
        truncated: Tensor | np.ndarray | None,
        cut: Tensor | np.ndarray | None,
    ) -> None:
        """Takes admitted generations into the pending statistics. See `FastSACAgent.observe`."""
        if self.obs is not None:
            self.obs.accumulate(obs, cut)
        if self.critic_obs is not None:
            if critic_obs is None:
                raise ValueError("this environment's critics have their own observation, but none was given")
            self.critic_obs.accumulate(critic_obs, cut)
        if self.reward is not None:
            if reward is None or terminated is None or truncated is None or cut is None:
                raise ValueError("reward_scaling needs reward, terminated, truncated and cut to be observed")
            rows = [as_tensor(x, self.device) for x in (reward, terminated, truncated, cut)]
            width = rows[0].shape[-1]
            raw, terminal, timeout, broken = (x.reshape(-1, width) for x in rows)
            self.reward.accumulate(raw, (terminal != 0) | (timeout != 0), broken)

    @torch.no_grad()
    def inputs(self, batch: Batch) -> Inputs:
        """A batch as the networks see it: both observations normalised alike, rewards scaled."""
        dtype = self.dtype
        obs, next_obs = _normalize(batch.observations, self.obs, dtype)
        critic_obs, next_critic_obs = obs, next_obs
        if batch.critic_observations is not None:
            critic_obs, next_critic_obs = _normalize(batch.critic_observations, self.critic_obs, dtype)
        reward = batch.reward.to(dtype)
        if self.reward is not None:
            reward = reward * self.reward.scale
        return Inputs(
            obs=obs,
            next_obs=next_obs,
            critic_obs=critic_obs,
            next_critic_obs=next_critic_obs,
            action=batch.action.to(dtype),
            reward=reward,
            discount=(batch.discount * batch.bootstrap).to(dtype),
            weight=batch.weight.to(dtype),
        )

    @torch.no_grad()
    def sync(self, reducer: Reducer | None) -> None:
        """Merges what all ranks have pending: one gather, and none without a reducer."""
        if not self.parts:
            return
        packed = torch.cat([part.pack() for part in self.parts.values()])
        rows = packed[None] if reducer is None else reducer.all_gather_f64(packed)
        offset = 0
        for part in self.parts.values():
            part.merge(rows[:, offset : offset + part.packed_size])
            offset += part.packed_size

    def tensors(self) -> dict[str, Tensor]:
        """What is the same on every rank."""
        return {
            f"{name}.{key}": tensor
            for name, part in self.parts.items()
            for key, tensor in part.shared_tensors().items()
        }

    def refresh(self) -> None:
        """Recomputes what is derived from `tensors`."""
        for part in self.parts.values():
            part.refresh()

    def local_state(self) -> dict[str, Any]:
        """What is this rank's alone."""
        return {
            name: {key: tensor.cpu().clone() for key, tensor in part.local_tensors().items()}
            for name, part in self.parts.items()
        }

    def load_local_state(self, state: dict[str, Any]) -> None:
        """Restores `local_state`.

        Raises:
            ValueError: It is of other statistics.
        """
        if state.keys() != self.parts.keys():
            raise ValueError(f"checkpoint has statistics {sorted(state)}, this agent {sorted(self.parts)}")
        for name, part in self.parts.items():
            part.load_local(state[name])


def _normalize(pair: Tensor, norm: RunningMeanStd | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Both halves of `[2, B, O]`."""
    first, second = (pair.to(dtype) if norm is None else norm.normalize(pair)).unbind(0)
    return first, second
