"""The training objectives on the host: those of `AutogradObjectives`, with gradients written out.

Used on CPUs without mixed precision or `torch.compile`. A test holds both together, loss by loss and gradient by
gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import loops, losses
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

    def __init__(self, config: FastSACConfig, networks: Networks) -> None:
        self.config, self.networks = config, networks
        self.support = losses.atoms(
            config.v_min, config.v_max, config.num_atoms, networks.log_alpha.dtype, networks.log_alpha.device
        )
        self._critic_mode = loops.MODES[config.critic_target]
        self._actor_mode = loops.MODES[config.actor_q]
        self._log_alpha = networks.log_alpha.detach().numpy()
        self._support = self.support.numpy()
        self._scale, self._bias = networks.scaling.scale.numpy(), networks.scaling.bias.numpy()
        self._batch = 0

    def _allocate(self, batch: int) -> None:
        if batch == self._batch:
            return
        self._batch = batch
        networks, like = self.networks, self.networks.log_alpha
        self._actor = StackedKernel(networks.actor.mlp, batch)
        self._critic = StackedKernel(networks.critic.mlp, batch)
        self._target = StackedKernel(networks.target.mlp, batch)
        actions, critics = self._scale.shape[0], networks.critic.mlp.count
        self._log_prob = like.new_empty(batch)  # this and the next three: of the last `_act`
        self._squashed, self._std, self._d_std = like.new_empty(3, batch, actions).numpy()
        self._d_head = like.new_empty(1, batch, 2 * actions)
        self._values = like.new_empty(critics, batch)
        own = self.config.critic_target == "own"
        self._goal = like.new_empty(critics if own else 1, batch, self._support.shape[0])

    def _act(
        self, obs: Tensor, noise: Tensor, critic: StackedKernel, critic_obs: Tensor, *, gradient: bool
    ) -> None:
        """Has `critic` see the actor's sampled actions; their log-probabilities `[B]` are in `_log_prob`."""
        actor, features = self.networks.actor, critic_obs.shape[1]
        self._actor.input.copy_(obs)
        critic.input[:, :features].copy_(critic_obs)
        loops.sample_action(
            self._actor.forward(gradient=gradient)[0].numpy(),
            noise.numpy(),
            self._scale,
            self._bias,
            actor.log_std_min,
            actor.log_std_max,
            critic.input[:, features:].numpy(),
            self._log_prob.numpy(),
            self._squashed,
            self._std,
            self._d_std,
        )

    @torch.no_grad()
    def critic_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> CriticResult:
        """Loss of the critics; its gradients are in the critic group afterwards. See `AutogradObjectives`."""
        self._allocate(noise.shape[0])
        self._act(inputs.next_obs, noise, self._target, inputs.next_critic_obs, gradient=False)
        loops.soft_target(
            self._target.forward(gradient=False).numpy(),
            self._support,
            inputs.reward.numpy(),
            inputs.discount.numpy(),
            self._log_prob.numpy(),
            self._log_alpha,
            self._critic_mode,
            self._goal.numpy(),
        )
        torch.cat([inputs.critic_obs, inputs.action], -1, out=self._critic.input)
        logits = self._critic.forward()
        if report:
            loss = losses.critic_loss(logits, self._goal, inputs.weight)
            result = critic_result(loss, self._log_prob, self._goal, self.support)
        else:
            result = CriticResult(self._log_prob.mean())
        loops.critic_gradient(logits.numpy(), self._goal.numpy(), inputs.weight.numpy())
        self._critic.backward(logits, parameters=True)
        return result

    @torch.no_grad()
    def actor_gradients(self, inputs: Inputs, noise: Tensor, *, report: bool = True) -> Tensor | None:
        """Loss of the actor; its gradients are in the actor group afterwards. See `AutogradObjectives`."""
        self._allocate(noise.shape[0])
        self._act(inputs.obs, noise, self._critic, inputs.critic_obs, gradient=True)
        logits = self._critic.forward()
        loops.value_gradient(logits.numpy(), self._support, self._actor_mode, self._values.numpy())
        loss = None
        if report:
            value = losses.combine_values(self._values, self.config.actor_q)
            loss = losses.actor_loss(self._log_prob, value, self.networks.log_alpha.exp())
        d_action = self._critic.backward(logits, parameters=False, input_from=inputs.critic_obs.shape[1])
        assert d_action is not None
        loops.sample_action_backward(
            d_action.numpy(),
            noise.numpy(),
            self._scale,
            self._log_alpha,
            self._squashed,
            self._std,
            self._d_std,
            self._d_head[0].numpy(),
        )
        self._actor.backward(self._d_head, parameters=True)
        return loss
