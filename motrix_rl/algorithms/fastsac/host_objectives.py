"""The training objectives on the host: those of `AutogradObjectives`, with gradients written out.

Used on CPUs without mixed precision or compilation. A test holds both together, loss by loss and gradient by
gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import losses
from motrix_rl.algorithms.fastsac.kernels import StackedKernel
from motrix_rl.algorithms.fastsac.objectives import CriticResult, Inputs, Networks, critic_result

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig


class HostObjectives:
    """Critic and actor objective with preallocated buffers and closed-form gradients.

    Args:
        config: Settings of the agent.
        networks: What is trained; gradients are views of the groups' flat buffers.
    """

    compiled = False

    def __init__(self, config: FastSACConfig, networks: Networks) -> None:
        self.config, self.networks = config, networks
        log_alpha = networks.log_alpha
        self.support = losses.atoms(
            config.v_min, config.v_max, config.num_atoms, log_alpha.dtype, log_alpha.device
        )
        self.log_scale_sum = networks.log_scale_sum()
        actor = networks.actor
        self._half_range = 0.5 * (actor.log_std_max - actor.log_std_min)
        self._log_std_min = actor.log_std_min
        self._batch = 0

    def _allocate(self, batch: int) -> None:
        if batch == self._batch:
            return
        self._batch = batch
        self._actor = StackedKernel(self.networks.actor.mlp, batch)
        self._critic = StackedKernel(self.networks.critic.mlp, batch)
        self._target = StackedKernel(self.networks.target.mlp, batch)

    @torch.no_grad()
    def critic_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> CriticResult:
        """Loss of the critics; its gradients are in the critic group afterwards. See `AutogradObjectives`."""
        config = self.config
        self._allocate(noise.shape[0])
        self._actor.input.copy_(inputs.next_obs)
        mean, raw = self._actor.forward(keep=False)[0].chunk(2, -1)
        log_std = torch.tanh(raw).add_(1.0).mul_(self._half_range).add_(self._log_std_min)
        squashed, log_prob = losses.squash(mean, log_std, noise)
        log_prob.sub_(self.log_scale_sum)
        torch.cat([inputs.next_critic_obs, self.networks.scaling(squashed)], -1, out=self._target.input)
        target = losses.soft_target(
            self._target.forward(keep=False),
            self.support,
            inputs.reward,
            inputs.discount,
            log_prob * -self.networks.log_alpha.exp(),
            v_min=config.v_min,
            v_max=config.v_max,
            mode=config.critic_target,
        )
        torch.cat([inputs.critic_obs, inputs.action], -1, out=self._critic.input)
        logits = self._critic.forward(keep=True)
        share = inputs.weight / inputs.weight.shape[0]
        result = CriticResult(log_prob.mean())
        if report:
            loss = losses.critic_loss(logits, target, inputs.weight)
            result = critic_result(loss, log_prob, target, self.support)
        # d(cross entropy)/d(logits) = p * sum(m) - m, and the projection's mass is 1.
        d_logits = torch.softmax(logits, -1).sub_(target).mul_(share[:, None])
        self._critic.backward(d_logits, parameters=True)
        return result

    @torch.no_grad()
    def actor_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> Tensor | None:
        """Loss of the actor; its gradients are in the actor group afterwards. See `AutogradObjectives`."""
        batch = noise.shape[0]
        self._allocate(batch)
        self._actor.input.copy_(inputs.obs)
        mean, raw = self._actor.forward(keep=True)[0].chunk(2, -1)
        tanh_raw = torch.tanh(raw)
        log_std = (tanh_raw + 1.0).mul_(self._half_range).add_(self._log_std_min)
        squashed, log_prob = losses.squash(mean, log_std, noise)
        log_prob.sub_(self.log_scale_sum)
        scaling = self.networks.scaling
        torch.cat([inputs.critic_obs, scaling(squashed)], -1, out=self._critic.input)
        probs = torch.softmax(self._critic.forward(keep=True), -1)
        values = losses.expected_value(probs, self.support)
        alpha = self.networks.log_alpha.exp()
        loss = None
        if report:
            loss = losses.actor_loss(log_prob, losses.combine_values(values, self.config.actor_q), alpha)

        d_value = self._value_share(values) / -batch
        # d(sum p z)/d(logit_k) = p_k (z_k - value).
        d_logits = (self.support - values[..., None]).mul_(probs).mul_(d_value[..., None])
        d_action = self._critic.backward(d_logits, parameters=False, input_from=inputs.critic_obs.shape[1])
        assert d_action is not None
        # d log pi/du = 2 tanh(u) at fixed noise; d action/du = scale (1 - tanh(u)^2).
        d_action.mul_(scaling.scale)
        d_u = torch.addcmul(d_action, d_action, squashed.square(), value=-1.0)
        d_u.addcmul_(squashed, alpha, value=2.0 / batch)
        d_log_std = (d_u * noise).mul_(log_std.exp()).sub_(alpha / batch)
        d_raw = d_log_std.mul_(tanh_raw.square().neg_().add_(1.0)).mul_(self._half_range)
        self._actor.backward(torch.cat([d_u, d_raw], -1)[None], parameters=True)
        return loss

    def _value_share(self, values: Tensor) -> Tensor:
        """Derivative `[Q, B]` or `[1, 1]` of the combined value by each critic's; ties of a minimum share."""
        if self.config.actor_q == "mean":
            return values.new_full((1, 1), 1.0 / values.shape[0])
        lowest = (values == values.amin(0)).to(values.dtype)
        return lowest / lowest.sum(0)
