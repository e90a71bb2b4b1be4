"""Floating-point operations of one update, counted from the sizes of its matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.envs.spec import EnvSpec


def update_flops(config: FastSACConfig, spec: EnvSpec, batch: int) -> float:
    """Operations of one critic update, and its share of an actor update.

    A product of [B, m] and [m, n] counts 2 B m n; what is not a product (LayerNorm, activations, softmax,
    the projection, Adam) counts nothing, so that an update can never reach the rate of a bare product.

    Critic update: actor and target critics forward on the next observation; critics forward; backward to
    their weights and to every layer's input but the first's. Actor update, every `policy_frequency`: actor
    forward; critics forward, and backward to the actions alone; backward through the actor.

    Args:
        config: settings of the agent.
        spec: sizes of the task.
        batch: samples B.
    """
    actor = _sizes(spec.obs_dim, config.actor_hidden_dim, 2 * spec.action_dim)
    critic_input = (spec.critic_obs_dim or spec.obs_dim) + spec.action_dim
    critic = _sizes(critic_input, config.critic_hidden_dim, config.num_atoms)
    count = config.num_q_networks
    forward_actor, forward_critic = _products(actor), count * _products(critic)
    first_actor, first_critic = actor[0] * actor[1], count * critic[0] * critic[1]
    critic_update = forward_actor + 4 * forward_critic - first_critic
    to_actions = forward_critic - first_critic + count * spec.action_dim * critic[1]
    actor_update = forward_critic + to_actions + 3 * forward_actor - first_actor
    return 2.0 * batch * (critic_update + actor_update / config.policy_frequency)


def _sizes(inputs: int, hidden: int, outputs: int) -> list[int]:
    return [inputs, hidden, hidden // 2, hidden // 4, outputs]


def _products(sizes: Sequence[int]) -> int:
    return sum(a * b for a, b in pairwise(sizes))
