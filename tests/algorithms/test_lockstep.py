"""Ranks that train together: what one would have done, equal to the bit, and the same collectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from tests.algorithms.helpers_algorithms import (
    CRITIC_SPEC,
    SPEC,
    ThreadReducer,
    filled_replay,
    make_agent,
    part_of,
    random_batch,
    run_ranks,
    small_config,
)

UPDATES = 7


def observations(seed: int, count: int, spec: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    critic = spec.critic_obs_dim
    return {
        "obs": rng.normal(seed, 2.0, (3, count, spec.obs_dim)),
        "critic_obs": None if critic is None else rng.normal(seed, 2.0, (3, count, critic)),
        "reward": rng.normal(size=(3, count)),
        "terminated": (rng.random((3, count)) < 0.2).astype(np.uint8),
        "truncated": np.zeros((3, count), np.uint8),
        "cut": np.zeros((3, count), np.uint8),
    }


def train(agent: FastSACAgent, observed: dict[str, Any], rows: slice) -> None:
    agent.observe(**observed)
    agent.sync_statistics()
    for step in range(UPDATES):
        g = torch.Generator().manual_seed(step)
        batch = random_batch(16, agent.env_spec, seed=step)
        noise = torch.randn(2, 16, agent.env_spec.action_dim, generator=g, dtype=torch.float64)
        agent.update_on(part_of(batch, rows), noise[0, rows], noise[1, rows])


@pytest.mark.covers("D4", "D5")
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("spec", [SPEC, CRITIC_SPEC], ids=["shared obs", "own critic obs"])
def test_ranks_equal_one_rank_with_the_whole_batch(world_size: int, spec: Any) -> None:
    config = small_config(max_grad_norm=1.0, critic_target="min", actor_q="min")
    counts = [3, 5, 1, 2][:world_size]
    parts = [observations(rank, count, spec) for rank, count in enumerate(counts)]
    whole = {k: None if v is None else np.concatenate([p[k] for p in parts], 1) for k, v in parts[0].items()}
    alone = make_agent(config, spec, dtype=torch.float64)
    train(alone, whole, slice(0, 16))

    reducers = ThreadReducer.make(world_size)
    agents = [
        make_agent(config, spec, dtype=torch.float64, reducer=reducer, sample_seed=reducer.rank)
        for reducer in reducers
    ]
    share = 16 // world_size
    run_ranks(
        [
            lambda agent=agent, rank=rank: train(agent, parts[rank], slice(rank * share, (rank + 1) * share))
            for rank, agent in enumerate(agents)
        ]
    )
    for name, tensor in alone.all_tensors().items():
        torch.testing.assert_close(agents[0].all_tensors()[name], tensor, rtol=1e-9, atol=1e-12)
    assert len({agent.parameter_hash() for agent in agents}) == 1
    assert not torch.equal(
        alone.critic_group.param, make_agent(config, spec, dtype=torch.float64).critic_group.param
    )


@pytest.mark.covers("D6", "D8")
def test_sequence_of_collectives_is_the_same_and_covers_every_trainable_element() -> None:
    config = small_config(policy_frequency=2)
    reducers = ThreadReducer.make(2)
    agents = [make_agent(config, reducer=r, sample_seed=r.rank) for r in reducers]

    def work(agent: FastSACAgent, envs: int) -> None:
        agent.update(filled_replay(agent, envs=envs, seed=envs), 6)

    run_ranks([lambda: work(agents[0], 3), lambda: work(agents[1], 5)])
    assert reducers[0].calls == reducers[1].calls
    critic, actor = (agents[0].trainable_tensors()[name].numel() for name in ("critic", "actor"))
    once = [("reduce", critic), ("reduce", critic), ("reduce", actor)]
    # One gather of count, mean and M2 of 5 observations and of the return, and the return's maximum.
    assert reducers[0].calls == [("gather", 11 + 4), *once * 3]
    assert agents[0].parameter_hash() == agents[1].parameter_hash()


@pytest.mark.covers("D9", "D5")
def test_nan_on_one_rank_is_skipped_by_all() -> None:
    reducers = ThreadReducer.make(2)
    agents = [make_agent(small_config(policy_frequency=1), reducer=r) for r in reducers]
    start = agents[0].critic_group.param.clone()

    def work(agent: FastSACAgent, value: float) -> None:
        batch = random_batch(8)
        batch.reward[0] = value
        agent.update_on(batch, torch.zeros(8, 3), torch.zeros(8, 3))

    run_ranks([lambda: work(agents[0], 1.0), lambda: work(agents[1], float("nan"))])
    for agent in agents:
        assert torch.equal(agent.critic_group.param, start)
        assert agent.metrics()["nonfinite_skips"] == 1.0  # the actor saw nothing wrong
        assert agent.updates_done == 1
    assert agents[0].parameter_hash() == agents[1].parameter_hash()


@pytest.mark.covers("D7")
def test_one_rank_issues_no_collective() -> None:
    (reducer,) = ThreadReducer.make(1)
    agent = make_agent(small_config(), reducer=reducer)
    agent.update(filled_replay(agent), 4)
    assert not reducer.calls


@pytest.mark.covers("T3")
def test_batch_that_does_not_divide_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="use 15 or 18"):
        make_agent(small_config(batch_size=16), reducer=ThreadReducer.make(3)[0])
