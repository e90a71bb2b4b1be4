"""Updates on a GPU: replayed as CUDA graphs, compiled, and in Python, they train the same networks."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.agent import FastSACAgent


def _no_gpu() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no CUDA device here"


_REASON = _no_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(_REASON is not None, reason=_REASON or "")]
DEVICE = "cuda:0"


def update(agent: FastSACAgent, number: int, *, spoilt: bool = False) -> None:
    """Update `number` on data that are the same on every device."""
    import torch

    from tests.algorithms.helpers_algorithms import random_batch

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
    import torch

    from tests.algorithms.helpers_algorithms import make_agent, small_config

    dtype = torch.float64 if double else torch.float32
    agent = make_agent(small_config(policy_frequency=2, **changes), device=device, dtype=dtype)
    for number in range(updates):
        update(agent, number)
    return agent


def parameters(agent: FastSACAgent) -> Any:
    import torch

    return torch.cat([agent.critic_group.param, agent.target_flat, agent.actor_group.param]).cpu()


@pytest.mark.covers("D1")
@pytest.mark.parametrize("graphs", [False, True], ids=["python", "graphs"])
def test_a_gpu_trains_what_a_cpu_trains(graphs: bool) -> None:
    import torch

    here = trained(12, double=True, cuda_graphs=graphs)
    there = trained(12, double=True, device="cpu")
    torch.testing.assert_close(parameters(here), parameters(there), rtol=1e-6, atol=1e-9)


@pytest.mark.covers("D1")
@pytest.mark.parametrize(
    "changes",
    [{"compile": True}, {"amp": True}, {"amp": True, "amp_dtype": "fp16"}],
    ids=["compiled", "bf16", "fp16"],
)
def test_graphs_train_what_python_trains(changes: dict[str, Any]) -> None:
    import torch

    plain, replayed = trained(40, **changes), trained(40, cuda_graphs=True, **changes)
    assert parameters(plain).isfinite().all()
    # Sums that are taken in another order; what is replayed on stale memory is elsewhere.
    torch.testing.assert_close(parameters(replayed), parameters(plain), rtol=1e-2, atol=1e-3)
    metrics = replayed.metrics()
    assert metrics["nonfinite_skips"] == 0 and metrics.keys() >= {"critic_loss", "actor_loss"}


@pytest.mark.covers("D9")
def test_a_replayed_update_skips_what_is_no_number() -> None:
    import torch

    agent = trained(12, cuda_graphs=True)
    before = agent.critic_group.param.clone()
    update(agent, 12, spoilt=True)
    assert torch.equal(agent.critic_group.param, before)
    assert agent.metrics()["nonfinite_skips"] >= 1
    update(agent, 13)
    assert not torch.equal(agent.critic_group.param, before)
