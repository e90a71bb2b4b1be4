"""Small agents, batches and a reducer of threads, shared by the tests of this folder."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.config import FastSACConfig
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.replay.batch import Batch
from motrix_rl.replay.buffer import ReplayBuffer
from tests.replay.oracle import random_generation

SPEC = EnvSpec(5, 3, (-1.0, -2.0, 0.0), (1.0, 4.0, 0.5))
CRITIC_SPEC = EnvSpec(5, 3, (-1.0, -2.0, 0.0), (1.0, 4.0, 0.5), critic_obs_dim=7)


def small_config(**changes: Any) -> FastSACConfig:
    """Networks of a few units, so that a test takes milliseconds."""
    settings: dict[str, Any] = {
        "batch_size": 16,
        "actor_hidden_dim": 16,
        "critic_hidden_dim": 24,
        "num_atoms": 11,
    }
    return FastSACConfig(**(settings | changes))


def make_agent(config: FastSACConfig, spec: EnvSpec = SPEC, **options: Any) -> FastSACAgent:
    settings: dict[str, Any] = {"device": "cpu", "init_seed": 0, "sample_seed": 1}
    return FastSACAgent(config, spec, **(settings | options))


def filled_replay(agent: FastSACAgent, *, envs: int = 4, steps: int = 30, seed: int = 0) -> ReplayBuffer:
    """A replay of random generations on the agent's device, all observed by the agent."""
    spec = agent.env_spec
    replay = ReplayBuffer(
        num_envs=envs,
        capacity=steps,
        obs_dim=spec.obs_dim,
        critic_obs_dim=spec.critic_obs_dim,
        action_dim=spec.action_dim,
        n_step=agent.config.n_step,
        gamma=agent.config.gamma,
        device=agent.device,
    )
    feed(agent, replay, range(steps), seed)
    return replay


def feed(agent: FastSACAgent, replay: ReplayBuffer, generations: range, seed: int) -> None:
    """Appends, observes and merges random generations."""
    rng = np.random.default_rng([seed, generations.start])
    spec = agent.env_spec
    for generation in generations:
        shard = random_generation(
            rng,
            replay.num_envs,
            obs_dim=spec.obs_dim,
            action_dim=spec.action_dim,
            critic_obs_dim=spec.critic_obs_dim,
        )
        replay.append(generation, [shard])
        agent.observe(
            shard.obs,
            shard.critic_obs,
            reward=shard.reward,
            terminated=shard.terminated,
            truncated=shard.truncated,
            cut=shard.cut,
        )
    agent.sync_statistics()


def random_batch(size: int, spec: EnvSpec = SPEC, seed: int = 0) -> Batch:
    """A batch with ends, shortened windows and rows without weight."""
    g = torch.Generator().manual_seed(seed)
    unit = torch.rand(size, spec.action_dim, generator=g)
    low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
    critic = spec.critic_obs_dim
    return Batch(
        observations=torch.randn(2, size, spec.obs_dim, generator=g),
        critic_observations=None if critic is None else torch.randn(2, size, critic, generator=g),
        action=low + (high - low) * unit,
        reward=torch.randn(size, generator=g),
        discount=torch.where(torch.rand(size, generator=g) < 0.3, 0.95, 0.99),
        bootstrap=(torch.rand(size, generator=g) < 0.8).float(),
        weight=(torch.rand(size, generator=g) < 0.9).float(),
    )


def part_of(batch: Batch, rows: slice) -> Batch:
    """Rows of a batch, as another rank would have drawn them."""
    critic = batch.critic_observations
    return Batch(
        batch.observations[:, rows],
        None if critic is None else critic[:, rows],
        *(x[rows] for x in (batch.action, batch.reward, batch.discount, batch.bootstrap, batch.weight)),
    )


class ThreadReducer:
    """Collectives between threads of one process, in rank order, so that every rank gets the same bits."""

    def __init__(self, rank: int, world: list[ThreadReducer], barrier: threading.Barrier) -> None:
        self.rank, self.world_size = rank, barrier.parties
        self._world, self._barrier = world, barrier
        self._mine: Tensor | None = None
        self.calls: list[tuple[str, int]] = []

    @classmethod
    def make(cls, world_size: int) -> list[ThreadReducer]:
        world: list[ThreadReducer] = []
        barrier = threading.Barrier(world_size, timeout=30)
        world += [cls(rank, world, barrier) for rank in range(world_size)]
        return world

    def _exchange(self, mine: Tensor) -> list[Tensor]:
        self._mine = mine.clone()
        self._barrier.wait()
        everyone = [peer._mine for peer in self._world]
        self._barrier.wait()
        return [x for x in everyone if x is not None]

    def all_reduce_mean_(self, flat: Tensor) -> None:
        self.calls.append(("reduce", flat.numel()))
        flat.copy_(torch.stack(self._exchange(flat)).mean(0))

    def all_gather_f64(self, values: Tensor) -> Tensor:
        self.calls.append(("gather", values.numel()))
        return torch.stack(self._exchange(values))


def run_ranks(work: list[Any]) -> None:
    """Runs one callable a rank, each in its thread, and raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
