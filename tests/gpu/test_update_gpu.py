"""Updates on a GPU: replayed as CUDA graphs, compiled, and in Python, they train the same networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from tests.algorithms.helpers_algorithms import (
    CRITIC_SPEC,
    SPEC,
    feed,
    filled_replay,
    make_agent,
    random_batch,
    small_config,
)
from tests.gpu.marks import NEEDS_GPU

pytestmark = NEEDS_GPU
DEVICE = "cuda:0"


def update(agent: FastSACAgent, number: int, *, spoilt: bool = False) -> None:
    """Update `number` on data that are the same on every device."""
    batch = random_batch(16, seed=number)
    for name, tensor in vars(batch).items():
        setattr(batch, name, None if tensor is None else tensor.to(agent.device))
    if spoilt:
        batch.reward[3] = float("nan")
    noise = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(number)).to(
        agent.device, agent.dtype
    )
    agent.update_on(batch, noise[0], noise[1])


def trained(updates: int, *, device: str = DEVICE, double: bool = False, **changes: Any) -> FastSACAgent:
    dtype = torch.float64 if double else torch.float32
    agent = make_agent(small_config(policy_frequency=2, **changes), device=device, dtype=dtype)
    for number in range(updates):
        update(agent, number)
    return agent


def recorded(agent: FastSACAgent) -> int:
    """Pieces of the update that are graphs by now."""
    return sum(getattr(piece, "_replay", None) is not None for piece in agent._update._pieces)


def parameters(agent: FastSACAgent) -> Any:
    return torch.cat([agent.critic_group.param, agent.target_flat, agent.actor_group.param]).cpu()


@pytest.mark.covers("D1")
@pytest.mark.parametrize("graphs", [False, True], ids=["python", "graphs"])
def test_a_gpu_trains_what_a_cpu_trains(graphs: bool) -> None:
    here = trained(12, double=True, cuda_graphs=graphs)
    there = trained(12, double=True, device="cpu")
    assert recorded(here) == (4 if graphs else 0)
    torch.testing.assert_close(parameters(here), parameters(there), rtol=1e-6, atol=1e-9)


@pytest.mark.timeout(300)  # the compiler
@pytest.mark.covers("D1")
@pytest.mark.parametrize(
    "changes",
    [{"compile": True}, {"amp": True}, {"amp": True, "amp_dtype": "fp16"}],
    ids=["compiled", "bf16", "fp16"],
)
def test_graphs_train_what_python_trains(changes: dict[str, Any]) -> None:
    plain, replayed = trained(40, **changes), trained(40, cuda_graphs=True, **changes)
    assert parameters(plain).isfinite().all() and recorded(plain) == 0 and recorded(replayed) == 4
    expected = "compiles" if changes.get("compile") else "nothing"
    assert plain.preparation == replayed.preparation == expected
    # Sums that are taken in another order; what is replayed on stale memory is elsewhere.
    torch.testing.assert_close(parameters(replayed), parameters(plain), rtol=1e-2, atol=1e-3)
    metrics = replayed.metrics()
    assert metrics["nonfinite_skips"] == 0 and metrics.keys() >= {"critic_loss", "actor_loss"}


@pytest.mark.covers("D9")
def test_a_replayed_update_skips_what_is_no_number() -> None:
    agent = trained(12, cuda_graphs=True)
    before = agent.critic_group.param.clone()
    update(agent, 12, spoilt=True)
    assert torch.equal(agent.critic_group.param, before)
    assert agent.metrics()["nonfinite_skips"] >= 1
    update(agent, 13)
    assert not torch.equal(agent.critic_group.param, before)


@pytest.mark.covers("D1")
@pytest.mark.parametrize("own", [False, True], ids=["shared obs", "own critic obs"])
def test_graphs_sample_follow_statistics_and_load(own: bool) -> None:
    """What `update` does around the pieces: against a CPU, on what a CPU has drawn."""
    agents = [
        make_agent(
            small_config(n_step=3, cuda_graphs=True),
            CRITIC_SPEC if own else SPEC,
            device=device,
            dtype=torch.float64,
        )
        for device in (DEVICE, "cpu")
    ]
    replays = [filled_replay(agent) for agent in agents]
    drawn = torch.Generator().manual_seed(0)

    def update(times: int) -> None:
        for _ in range(times):
            rows = replays[1].draw(16, drawn)
            noise = torch.randn(2, 16, 3, generator=drawn, dtype=torch.float64)
            for agent, replay in zip(agents, replays, strict=True):
                batch = replay.gather(rows.to(agent.device), agent._update.batch)
                agent.update_on(batch, *noise.to(agent.device).unbind(0))

    update(12)
    kept = [agent.state_dict() for agent in agents]
    for agent, replay in zip(agents, replays, strict=True):
        feed(agent, replay, range(30, 50), seed=1)
    update(6)
    assert recorded(agents[0]) == 4
    torch.testing.assert_close(*(parameters(agent) for agent in agents), rtol=1e-6, atol=1e-9)
    for agent, state in zip(agents, kept, strict=True):
        agent.load_state_dict(state)
    update(3)
    torch.testing.assert_close(*(parameters(agent) for agent in agents), rtol=1e-6, atol=1e-9)
    agents[0].update(replays[0], 5)
    assert parameters(agents[0]).isfinite().all() and agents[0].metrics()["nonfinite_skips"] == 0
