"""The whole of replay, normaliser, agent and policy on a problem with a known answer, in seconds."""

from __future__ import annotations

import numpy as np
import pytest

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.replay.buffer import ReplayBuffer
from tests.algorithms.helpers_algorithms import make_agent, small_config
from tests.replay.oracle import Shard

ENVS = 32
SPEC = EnvSpec(2, 1, (-2.0,), (2.0,))


def best_action(obs: np.ndarray) -> np.ndarray:
    """What the reward asks for: far from 0 and from the bounds, and different for every observation."""
    return np.tanh(obs[:, :1] - 100.0) + 0.5


def step(rng: np.random.Generator, obs: np.ndarray, action: np.ndarray) -> Shard:
    """One-step episodes: reward is minus the squared distance to the best action."""
    reward = -((action - best_action(obs)) ** 2)[:, 0]
    ones, zeros = np.ones(ENVS, np.uint8), np.zeros(ENVS, np.uint8)
    index = np.arange(ENVS, dtype=np.int32)
    final = rng.normal(100.0, 1.0, (ENVS, 2)).astype(np.float32)
    return Shard(
        obs, None, action, reward.astype(np.float32), ones, zeros, zeros, index, final, None, ENVS, ENVS
    )


@pytest.mark.covers("A6")
@pytest.mark.parametrize("seed", [0, 1])
def test_contextual_bandit_is_solved(seed: int) -> None:
    config = small_config(
        batch_size=64, actor_hidden_dim=64, critic_hidden_dim=64, num_atoms=31,
        actor_learning_rate=2e-3, critic_learning_rate=2e-3, tau=0.1, target_entropy_std=0.05,
    )  # fmt: skip
    agent = make_agent(config, SPEC, init_seed=seed, sample_seed=seed)
    policy = Policy(config, SPEC)
    replay = ReplayBuffer(
        num_envs=ENVS,
        capacity=400,
        obs_dim=2,
        critic_obs_dim=None,
        action_dim=1,
        n_step=1,
        gamma=config.gamma,
    )
    rng = np.random.default_rng(seed)
    vector, action = np.empty(policy.size, np.float32), np.empty((ENVS, 1), np.float32)

    def error() -> float:
        obs, out = rng.normal(100.0, 1.0, (500, 2)).astype(np.float32), np.empty((500, 1), np.float32)
        policy.act(obs, out, deterministic=True)
        return float(np.sqrt(np.mean((out - best_action(obs)) ** 2)))

    start = error()
    for generation in range(350):
        obs = rng.normal(100.0, 1.0, (ENVS, 2)).astype(np.float32)
        if generation < 30:
            policy.random_actions(action, rng)
        else:
            policy.act(obs, action, generator=rng)
        shard = step(rng, obs, action.copy())
        replay.append(generation, [shard])
        agent.observe(
            shard.obs,
            reward=shard.reward,
            terminated=shard.terminated,
            truncated=shard.truncated,
            cut=shard.cut,
        )
        agent.sync_statistics()
        if generation >= 30:
            agent.update(replay, 2)
            agent.policy_vector(vector)
            policy.load(vector)
    assert start > 0.6
    assert error() < 0.2, agent.metrics()
