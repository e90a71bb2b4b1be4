"""A replay filled with random numbers: an update costs the same whatever the numbers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from motrix_rl.replay.buffer import ReplayBuffer

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.agent import FastSACAgent
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.envs.spec import EnvSpec

#: Enough for a batch to miss every cache, little enough to be filled within a second or two.
MAX_TRANSITIONS = 1 << 17


@dataclass(frozen=True)
class SyntheticShard:
    """One generation of random numbers; the attributes are those of a slot."""

    num_envs: int
    obs: NDArray[np.float32]
    critic_obs: NDArray[np.float32] | None
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    cut: NDArray[np.uint8]
    final_index: NDArray[np.int32]
    final_obs: NDArray[np.float32]
    final_critic_obs: NDArray[np.float32] | None
    num_final: int


def fill_rows(buffer_size: int, num_envs: int, n_step: int) -> int:
    """Generations to fill: as many as the replay holds, or `MAX_TRANSITIONS` of them."""
    return max(math.ceil(min(buffer_size, MAX_TRANSITIONS) / num_envs), n_step + 2)


def filled_replay(
    config: FastSACConfig, spec: EnvSpec, num_envs: int, rows: int, device: str, agent: FastSACAgent
) -> ReplayBuffer:
    """A replay of `rows` generations, all of them filled, which the agent's statistics have seen."""
    replay = ReplayBuffer(
        num_envs=num_envs,
        capacity=rows,
        obs_dim=spec.obs_dim,
        critic_obs_dim=spec.critic_obs_dim,
        action_dim=spec.action_dim,
        n_step=config.n_step,
        gamma=config.gamma,
        device=device,
    )
    rng = np.random.default_rng(0)
    for generation in range(rows):
        shard = random_shard(rng, spec, num_envs)
        replay.append(generation, [shard])
        if generation < 4:
            agent.observe(
                shard.obs, shard.critic_obs, reward=shard.reward, terminated=shard.terminated,
                truncated=shard.truncated, cut=shard.cut,
            )  # fmt: skip
    agent.sync_statistics()
    return replay


def random_shard(
    rng: np.random.Generator,
    spec: EnvSpec,
    num_envs: int,
    *,
    terminated: float = 0.0,
    truncated: float = 1 / 100,
    cut: float = 0.0,
) -> SyntheticShard:
    """A generation in which each environment is terminated, truncated or cut with these probabilities."""

    def normal(size: int) -> NDArray[np.float32]:
        return rng.standard_normal((num_envs, size), dtype=np.float32)

    is_terminated = rng.random(num_envs) < terminated
    is_truncated = (rng.random(num_envs) < truncated) & ~is_terminated
    is_cut = (rng.random(num_envs) < cut) & ~is_terminated & ~is_truncated
    ended = np.flatnonzero(is_terminated | is_truncated)
    index = np.zeros(num_envs, np.int32)
    index[: len(ended)] = ended
    critic = spec.critic_obs_dim
    return SyntheticShard(
        num_envs=num_envs,
        obs=normal(spec.obs_dim),
        critic_obs=None if critic is None else normal(critic),
        action=np.tanh(normal(spec.action_dim)),
        reward=np.where(is_cut, np.float32(0), rng.standard_normal(num_envs, dtype=np.float32)),
        terminated=is_terminated.astype(np.uint8),
        truncated=is_truncated.astype(np.uint8),
        cut=is_cut.astype(np.uint8),
        final_index=index,
        final_obs=normal(spec.obs_dim),
        final_critic_obs=None if critic is None else normal(critic),
        num_final=len(ended),
    )
