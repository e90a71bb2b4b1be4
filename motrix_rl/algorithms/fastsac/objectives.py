"""The two training objectives: networks and losses put together, without optimisers or statistics."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import losses

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.algorithms.fastsac.flat import FlatGroup
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
    """Scalars `[]` of one critic objective; those that may be None are computed for reports only.

    Attributes:
        log_prob: Mean log-probability of the next actions, which the temperature learns from.
        loss: Cross entropy, summed over critics.
        value: Mean of the target distributions.
        edge_mass: Share of target mass on the outermost atoms: the support is too narrow where it grows.
    """

    log_prob: Tensor
    loss: Tensor | None = None
    value: Tensor | None = None
    edge_mass: Tensor | None = None


@dataclass(frozen=True)
class Networks:
    """What the objectives are computed on.

    Attributes:
        actor: Policy.
        critic: Critics being trained.
        target: Their slow copy.
        scaling: Action bounds.
        log_alpha: `[1]` log temperature.
    """

    actor: Actor
    critic: EnsembleCritic
    target: EnsembleCritic
    scaling: ActionScaling
    log_alpha: Tensor

    def log_scale_sum(self) -> float:
        """What the log-probability loses from the unit box to the environment's actions."""
        return float(self.scaling.scale.to(torch.float64).log().sum())


class AutogradObjectives:
    """Objectives through autograd: for GPUs, mixed precision and compilation.

    Args:
        config: Settings of the agent.
        networks: What is trained.
        actor_group: Receives the actor's gradients.
        critic_group: Receives the critics' gradients.

    Attributes:
        compiled: Whether the objectives are compiled at their first call.
    """

    def __init__(
        self, config: FastSACConfig, networks: Networks, actor_group: FlatGroup, critic_group: FlatGroup
    ) -> None:
        self.config, self.networks = config, networks
        self.actor_group, self.critic_group = actor_group, critic_group
        log_alpha = networks.log_alpha
        self.dtype, self.device_type = log_alpha.dtype, log_alpha.device.type
        self.log_scale_sum = networks.log_scale_sum()
        self.support = losses.atoms(
            config.v_min, config.v_max, config.num_atoms, self.dtype, log_alpha.device
        )
        self.amp_dtype = torch.bfloat16 if config.amp_dtype == "bf16" else torch.float16
        self._critic, self._actor = self.critic_objective, self.actor_objective
        self.compiled = config.compile and compiler_works(log_alpha.device)
        if self.compiled:
            self._critic = torch.compile(self.critic_objective, dynamic=False)
            self._actor = torch.compile(self.actor_objective, dynamic=False)

    def critic_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> CriticResult:
        """Loss of the critics; its gradients are in the critic group afterwards.

        Args:
            inputs: The batch.
            noise: `[B, A]` standard normal, for the next action.
            report: Whether all of the result is wanted.
        """
        result = self._critic(inputs, noise)
        assert result.loss is not None
        self.critic_group.backward(result.loss)
        return result._replace(loss=result.loss.detach())  # it would keep the graph

    def actor_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> Tensor:
        """Loss of the actor; its gradients are in the actor group afterwards, and no critic has got any.

        Args:
            inputs: The batch.
            noise: `[B, A]` standard normal, for the action.
            report: Whether the loss is wanted.
        """
        loss = self._actor(inputs, noise)
        self.actor_group.backward(loss)
        return loss.detach()

    def critic_objective(self, inputs: Inputs, noise: Tensor) -> CriticResult:
        """The critics' loss as a graph."""
        config, networks = self.config, self.networks
        with torch.no_grad():
            with self._autocast():
                action, log_prob = self._act(inputs.next_obs, noise)
                target_logits = networks.target(inputs.next_critic_obs, action)
            target = losses.soft_target(
                target_logits.to(self.dtype),
                self.support,
                inputs.reward,
                inputs.discount,
                -networks.log_alpha.exp() * log_prob,
                v_min=config.v_min,
                v_max=config.v_max,
                mode=config.critic_target,
            )
        with self._autocast():
            logits = networks.critic(inputs.critic_obs, inputs.action)
        loss = losses.critic_loss(logits.to(self.dtype), target, inputs.weight)
        with torch.no_grad():
            return critic_result(loss, log_prob, target, self.support)

    def actor_objective(self, inputs: Inputs, noise: Tensor) -> Tensor:
        """The actor's loss as a graph."""
        with self._autocast():
            action, log_prob = self._act(inputs.obs, noise)
            logits = self.networks.critic(inputs.critic_obs, action)
        values = losses.expected_value(torch.softmax(logits.to(self.dtype), -1), self.support)
        value = losses.combine_values(values, self.config.actor_q)
        return losses.actor_loss(log_prob, value, self.networks.log_alpha.detach().exp())

    def _act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Action `[B, A]` in the environment's space and its log-probability `[B]` there."""
        mean, log_std = self.networks.actor(obs)
        squashed, log_prob = losses.squash(mean.to(self.dtype), log_std.to(self.dtype), noise)
        return self.networks.scaling(squashed), log_prob - self.log_scale_sum

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device_type, dtype=self.amp_dtype, enabled=self.config.amp)


def critic_result(loss: Tensor, log_prob: Tensor, target: Tensor, support: Tensor) -> CriticResult:
    """Gathers the scalars of a critic objective with target `[Q or 1, B, K]`."""
    edge_mass = target[..., 0].mean() + target[..., -1].mean()
    return CriticResult(log_prob.mean(), loss, losses.expected_value(target, support).mean(), edge_mass)


def compiler_works(device: torch.device) -> bool:
    """Whether torch.compile can build and run a small function, backward included, on `device`."""
    x = torch.ones(4, device=device, requires_grad=True)
    try:
        torch.compile(_probe)(x).backward()
    except (RuntimeError, ImportError, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        log.warning(
            "compile=true, but torch.compile does not work here; running eagerly (%s)", reason[0][:200]
        )
        return False
    return True


def _probe(x: Tensor) -> Tensor:
    return (torch.sin(x) * 2.0).sum()
