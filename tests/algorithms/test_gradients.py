"""Gradients written out on the host against autograd, and networks against plain layers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from motrix_rl.algorithms.fastsac import losses
from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.host_objectives import HostObjectives
from motrix_rl.algorithms.fastsac.networks import StackedMLP
from motrix_rl.algorithms.fastsac.objectives import AutogradObjectives, Networks
from motrix_rl.envs.spec import EnvSpec
from tests.algorithms.helpers_algorithms import CRITIC_SPEC, SPEC, make_agent, random_batch, small_config


def both(agent: FastSACAgent) -> tuple[HostObjectives, AutogradObjectives]:
    networks = Networks(agent.actor, agent.critic, agent.target, agent.scaling, agent.log_alpha)
    host = HostObjectives(agent.config, networks)
    return host, AutogradObjectives(agent.config, networks, agent.actor_group, agent.critic_group)


def scramble(agent: FastSACAgent) -> None:
    """Away from the zero-initialised head, where half of the actor's gradients vanish."""
    g = torch.Generator().manual_seed(5)
    for flat in (agent.actor_group.param, agent.critic_group.param, agent.target_flat):
        flat.add_(0.2 * torch.randn(flat.shape, generator=g, dtype=flat.dtype))


@pytest.mark.covers("A2")
@pytest.mark.parametrize(
    ("critic_target", "actor_q"), list(itertools.product(["own", "min", "mean"], ["mean", "min"]))
)
@pytest.mark.parametrize("spec", [SPEC, CRITIC_SPEC], ids=["shared obs", "own critic obs"])
@pytest.mark.parametrize("critics", [1, 3])
def test_written_out_gradients_equal_autograd(
    critic_target: Any, actor_q: Any, spec: EnvSpec, critics: int
) -> None:
    config = small_config(critic_target=critic_target, actor_q=actor_q, num_q_networks=critics)
    agent = make_agent(config, spec, dtype=torch.float64)
    scramble(agent)
    host, autograd = both(agent)
    inputs = agent.statistics.inputs(random_batch(16, spec))
    noise = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    grads = []
    for objectives in (host, autograd):
        agent.critic_group.grad.fill_(float("nan"))
        result = objectives.critic_gradients(inputs, noise)
        grads.append((agent.critic_group.grad[:-1].clone(), *(x.detach() for x in result)))  # type: ignore[union-attr]
    for mine, reference in zip(*grads, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-12)

    grads = []
    for objectives in (host, autograd):
        agent.actor_group.grad.fill_(float("nan"))
        agent.critic_group.grad.fill_(7.0)
        loss = objectives.actor_gradients(inputs, noise)
        assert loss is not None
        grads.append((agent.actor_group.grad.clone(), loss.detach()))
        assert (agent.critic_group.grad == 7.0).all(), "the actor's backward reached the critics"
    for mine, reference in zip(*grads, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-12)


def test_reports_do_not_change_gradients() -> None:
    agent = make_agent(small_config())
    host, _ = both(agent)
    inputs, noise = agent.statistics.inputs(random_batch(16)), torch.randn(16, 3)
    host.critic_gradients(inputs, noise, report=True)
    before = agent.critic_group.grad.clone()
    assert host.critic_gradients(inputs, noise, report=False).loss is None
    assert torch.equal(agent.critic_group.grad, before)


def test_stack_equals_single_networks_of_plain_layers() -> None:
    stack = StackedMLP([5, 16, 8, 3], 3, zero_head=False, generator=torch.Generator().manual_seed(0))
    for parameter in stack.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
    x = torch.randn(7, 5)
    out = stack(x)
    for critic in range(3):
        h = x
        for layer in range(3):
            h = h @ stack.weights[layer][critic] + stack.biases[layer][critic]
            if layer < 2:
                norm = nn.LayerNorm(h.shape[-1])
                norm.weight.data = stack.gains[layer].data[critic, 0]
                norm.bias.data = stack.offsets[layer].data[critic, 0]
                h = nn.functional.silu(norm(h))
        torch.testing.assert_close(out[critic], h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixed_precision_stays_close(dtype: Any) -> None:
    plain, mixed = make_agent(small_config()), make_agent(small_config(amp=True, amp_dtype=dtype))
    for agent in (plain, mixed):
        for seed in range(4):
            g = torch.Generator().manual_seed(seed)
            noise = torch.randn(2, 16, 3, generator=g)
            agent.update_on(random_batch(16, seed=seed), noise[0], noise[1])
    assert mixed.metrics()["nonfinite_skips"] == 0
    torch.testing.assert_close(mixed.critic_group.param, plain.critic_group.param, rtol=0, atol=3e-3)
    moved = (mixed.critic_group.param - make_agent(small_config()).critic_group.param).abs().max()
    assert float(moved) > 5e-4


@pytest.mark.slow
@pytest.mark.covers("A7")
@pytest.mark.timeout(600)
def test_compiled_and_eager_agree() -> None:
    plain, compiled = make_agent(small_config()), make_agent(small_config(compile=True))
    for agent in (plain, compiled):
        for seed in range(4):
            g = torch.Generator().manual_seed(seed)
            noise = torch.randn(2, 16, 3, generator=g)
            agent.update_on(random_batch(16, seed=seed), noise[0], noise[1])
    torch.testing.assert_close(compiled.critic_group.param, plain.critic_group.param, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled.actor_group.param, plain.actor_group.param, rtol=1e-4, atol=1e-5)


def test_without_a_compiler_it_runs_eagerly_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no working C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", broken)
    agent = make_agent(small_config(compile=True))
    agent.update_on(random_batch(16), torch.zeros(16, 3), torch.zeros(16, 3))
    assert agent.updates_done == 1
    (record,) = caplog.records
    assert "running eagerly (no working C++ compiler found)" in record.message


@pytest.mark.parametrize("amp_dtype", ["bf16", "fp16"])
def test_mixed_precision_ends_with_the_networks(amp_dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets and losses are the agent's type: rounded expectations would choose another critic's minimum."""
    agent = make_agent(small_config(amp=True, amp_dtype=amp_dtype, critic_target="min", actor_q="min"))
    calls: list[str] = []

    def watched(name: str) -> Any:
        function = getattr(losses, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            assert not torch.is_autocast_enabled("cpu"), name
            calls.append(name)
            return function(*args, **kwargs)

        return call

    names = (
        "soft_target",
        "project",
        "select_target",
        "expected_value",
        "critic_loss",
        "combine_values",
        "actor_loss",
    )
    for name in names:
        monkeypatch.setattr(losses, name, watched(name))
    noise = torch.randn(2, 16, 3)
    agent.update_on(random_batch(16), noise[0], noise[1])
    agent.update_on(random_batch(16), noise[0], noise[1])
    assert set(calls) == set(names)
