"""Updates that are recorded once and replayed, by a tape that stands in for a CUDA graph: the same to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.graphs import WARM_UP
from motrix_rl.envs.spec import EnvSpec
from tests.algorithms.helpers_algorithms import (
    CRITIC_SPEC,
    SPEC,
    ThreadReducer,
    feed,
    filled_replay,
    make_agent,
    random_batch,
    run_ranks,
    small_config,
)
from tests.algorithms.tape import Tape


def agent_of(spec: EnvSpec = SPEC, *, replayed: bool, **changes: Any) -> tuple[FastSACAgent, Tape]:
    """An agent with the objectives of a GPU."""
    reducer = changes.pop("reducer", None)
    agent, tape = make_agent(small_config(**changes), spec, reducer=reducer), Tape()
    agent._update._by_hand = False
    if replayed:
        agent._update.replay(tape)
    return agent, tape


@pytest.mark.covers("D1")
@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (SPEC, {}),
        (CRITIC_SPEC, {"n_step": 3, "critic_target": "min", "actor_q": "min"}),
        (SPEC, {"max_grad_norm": 0.5, "policy_frequency": 1}),
        (SPEC, {"obs_normalization": False, "reward_scaling": False, "use_autotune": False}),
        (SPEC, {"amp": True, "amp_dtype": "bf16"}),
        (SPEC, {"amp": True, "amp_dtype": "fp16"}),
    ],
    ids=["default", "own critic obs", "clipped", "options off", "bf16", "fp16"],
)
def test_replayed_updates_are_those_of_python(spec: EnvSpec, changes: dict[str, Any]) -> None:
    """Through new statistics, a full ring, a restored state and batches that are given."""
    hashes = []
    for replayed in (False, True):
        agent, tape = agent_of(spec, replayed=replayed, **changes)
        replay = filled_replay(agent, steps=30)
        agent.update(replay, 12)
        seen = [agent.parameter_hash()]
        feed(agent, replay, range(30, 50), seed=1)
        agent.update(replay, 9)
        seen.append(agent.parameter_hash())
        kept = agent.state_dict()
        noise = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(3))
        given = random_batch(16, spec)
        agent.update_on(given, noise[0], noise[1])
        assert all(
            torch.equal(x, y) for x, y in zip(tensors(given), tensors(random_batch(16, spec)), strict=True)
        )
        seen.append(agent.parameter_hash())
        agent.load_state_dict(kept)
        assert agent.parameter_hash() == seen[1]
        agent.update(replay, 5)
        hashes.append([*seen, agent.parameter_hash()])
        assert agent.metrics().keys() >= {"critic_loss", "actor_loss"}
        assert tape.recorded == (4 if replayed else 0)
        assert not replayed or tape.replays > 2 * (27 - WARM_UP - 1)
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 4


def test_replayed_updates_report_what_python_reports() -> None:
    """Every one of them, whichever was recorded; of Python's one in eight, the 17th for instance."""
    reports = []
    for replayed in (False, True):
        agent, _ = agent_of(replayed=replayed, policy_frequency=1)
        replay = filled_replay(agent)
        agent.update(replay, 16)
        agent.metrics()
        agent.update(replay, 1)
        reports.append(agent.metrics())
    assert reports[0] == reports[1] and reports[0].keys() >= {"critic_loss", "actor_loss"}
    agent.update(replay, 1)
    assert "critic_loss" in agent.metrics()


def tensors(batch: Any) -> list[torch.Tensor]:
    return [x for x in vars(batch).values() if x is not None]


@pytest.mark.covers("D9")
def test_a_replayed_update_skips_what_is_no_number() -> None:
    agent, _ = agent_of(replayed=True)
    replay = filled_replay(agent)
    agent.update(replay, 12)
    before, noise = agent.critic_group.param.clone(), torch.randn(2, 16, 3)
    batch = random_batch(16)
    batch.reward[3] = float("nan")
    agent.update_on(batch, noise[0], noise[1])
    assert torch.equal(agent.critic_group.param, before)
    assert agent.metrics()["nonfinite_skips"] == 1
    agent.update(replay, 2)
    assert not torch.equal(agent.critic_group.param, before)


@pytest.mark.covers("D1")
def test_ranks_are_reduced_between_what_they_replay() -> None:
    """Each of two ranks has another batch; replayed or not, both end with the same parameters."""
    hashes = []
    for replayed in (False, True):
        reducers = ThreadReducer.make(2)
        agents = [agent_of(replayed=replayed, reducer=reducer)[0] for reducer in reducers]

        def work(agent: FastSACAgent, seed: int) -> None:
            for number in range(12):
                g = torch.Generator().manual_seed(100 * seed + number)
                noise = torch.randn(2, agent.batch_size, 3, generator=g)
                agent.update_on(random_batch(agent.batch_size, seed=100 * seed + number), noise[0], noise[1])

        run_ranks([lambda agent=agent, seed=seed: work(agent, seed) for seed, agent in enumerate(agents)])
        assert reducers[0].calls == reducers[1].calls and len(reducers[0].calls) == 12 + 6
        hashes.append([agent.parameter_hash() for agent in agents])
    assert len({digest for both in hashes for digest in both}) == 1


def test_on_a_cpu_nothing_is_replayed() -> None:
    assert make_agent(small_config(cuda_graphs=True))._update.batch is None
