"""The two training objectives: networks and losses put together, without optimisers or statistics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import losses
from motrix_rl.algorithms.fastsac.config import FastSACConfig
from motrix_rl.algorithms.fastsac.networks import ActionScaling, Actor, EnsembleCritic

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """A batch as the networks see it: normalised, scaled, in the agent's type.

    Attributes:
        obs: `[B, O]`.
        next_obs: `[B, O]`.
        critic_obs: `[B, C]`; is `obs` where critics have no own.
        next_critic_obs: `[B, C]`.
        action: `[B, A]` in the environment's space.
        reward: `[B]` scaled n-step reward.
        discount: `[B]` `bootstrap * gamma^n`.
        weight: `[B]`.
    """

    obs: Tensor
    next_obs: Tensor
    critic_obs: Tensor
    next_critic_obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor


class CriticResult(NamedTuple):
    """Scalars `[]` of one critic objective; only `loss` carries a gradient."""

    loss: Tensor
    log_prob: Tensor
    value: Tensor
    edge_mass: Tensor


class ActorResult(NamedTuple):
    """Scalars `[]` of one actor objective; only `loss` carries a gradient."""

    loss: Tensor


class Objectives:
    """Critic and actor objective over one set of networks.

    Args:
        config: Settings of the agent.
        actor: Policy.
        critic: Critics being trained.
        target: Their slow copy.
        scaling: Action bounds.
        log_alpha: `[1]`, log temperature.
    """

    def __init__(
        self,
        config: FastSACConfig,
        actor: Actor,
        critic: EnsembleCritic,
        target: EnsembleCritic,
        scaling: ActionScaling,
        log_alpha: Tensor,
    ) -> None:
        self.config = config
        self.actor_net, self.critic_net, self.target_net = actor, critic, target
        self.scaling, self.log_alpha = scaling, log_alpha
        self.dtype = log_alpha.dtype
        self.device_type = log_alpha.device.type
        self.log_scale_sum = float(scaling.scale.to(torch.float64).log().sum())
        self.support = losses.atoms(config.v_min, config.v_max, config.num_atoms, self.dtype, log_alpha.device)
        self.amp_dtype = torch.bfloat16 if config.amp_dtype == "bf16" else torch.float16
        self.critic: Callable[[Inputs, Tensor], CriticResult] = self._critic
        self.actor: Callable[[Inputs, Tensor], ActorResult] = self._actor
        if config.compile and compiler_works(log_alpha.device):
            self.critic = torch.compile(self._critic, dynamic=False)
            self.actor = torch.compile(self._actor, dynamic=False)

    def _critic(self, inputs: Inputs, noise: Tensor) -> CriticResult:
        """Loss of the critics on `inputs`, with standard normal `noise` `[B, A]` for the next action."""
        config = self.config
        with torch.no_grad(), self._autocast():
            action, log_prob = self._act(inputs.next_obs, noise)
            target = losses.soft_target(
                self.target_net(inputs.next_critic_obs, action).to(self.dtype),
                self.support,
                inputs.reward,
                inputs.discount,
                -self.log_alpha.exp() * log_prob,
                v_min=config.v_min,
                v_max=config.v_max,
                mode=config.critic_target,
            )
        with self._autocast():
            logits = self.critic_net(inputs.critic_obs, inputs.action)
        loss = losses.critic_loss(logits.to(self.dtype), target, inputs.weight)
        with torch.no_grad():
            edge_mass = target[..., 0].mean() + target[..., -1].mean()
            value = losses.expected_value(target, self.support).mean()
        return CriticResult(loss, log_prob.mean(), value, edge_mass)

    def _actor(self, inputs: Inputs, noise: Tensor) -> ActorResult:
        """Loss of the actor on `inputs`, with standard normal `noise` `[B, A]` for its action."""
        with self._autocast():
            action, log_prob = self._act(inputs.obs, noise)
            logits = self.critic_net(inputs.critic_obs, action)
        values = losses.expected_value(torch.softmax(logits.to(self.dtype), -1), self.support)
        value = losses.combine_values(values, self.config.actor_q)
        return ActorResult(losses.actor_loss(log_prob, value, self.log_alpha.detach().exp()))

    def _act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Action `[B, A]` in the environment's space and its log-probability `[B]` there."""
        mean, log_std = self.actor_net(obs)
        squashed, log_prob = losses.squash(mean.to(self.dtype), log_std.to(self.dtype), noise)
        return self.scaling(squashed), log_prob - self.log_scale_sum

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device_type, dtype=self.amp_dtype, enabled=self.config.amp)


def compiler_works(device: torch.device) -> bool:
    """Whether torch.compile can build and run a small function, backward included, on `device`."""
    x = torch.ones(4, device=device, requires_grad=True)
    try:
        torch.compile(_probe)(x).backward()
    except (RuntimeError, ImportError, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        log.warning("compile=true, but torch.compile does not work here; running eagerly (%s)", reason[0][:200])
        return False
    return True


def _probe(x: Tensor) -> Tensor:
    return (torch.sin(x) * 2.0).sum()
