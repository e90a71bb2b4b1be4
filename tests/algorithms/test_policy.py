"""The acting side."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.envs.spec import EnvSpec
from tests.algorithms.helpers_algorithms import SPEC, filled_replay, make_agent, small_config

LOW, HIGH = np.array(SPEC.action_low, np.float32), np.array(SPEC.action_high, np.float32)


def trained() -> tuple[FastSACAgent, Policy]:
    agent = make_agent(small_config(actor_learning_rate=0.05))
    agent.update(filled_replay(agent), 40)
    policy = Policy(agent.config, SPEC)
    assert policy.size == agent.policy_size
    vector = np.empty(policy.size, np.float32)
    agent.policy_vector(vector)
    policy.load(vector)
    return agent, policy


def observations(rows: int = 33) -> np.ndarray:
    return np.random.default_rng(3).normal(0.5, 2.0, (rows, SPEC.obs_dim)).astype(np.float32)


def test_policy_acts_as_the_agents_actor() -> None:
    agent, policy = trained()
    obs, out = observations(), np.empty((33, 3), np.float32)
    policy.act(obs, out, deterministic=True)
    with torch.no_grad():
        mean, log_std = agent.actor(agent.statistics.obs.normalize(torch.from_numpy(obs)))  # type: ignore[union-attr]
        expected = agent.scaling(torch.tanh(mean))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(out, axis=0).min() > 1e-3, "an untrained policy proves nothing"

    policy.act(obs, out, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(33, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = agent.scaling(torch.tanh(mean + noise * log_std.exp()))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_samples_repeat_with_the_callers_generator(kind: str) -> None:
    _, policy = trained()
    obs = observations()
    outs = []
    for seed in (0, 0, 1):
        out = np.empty((33, 3), np.float32)
        generator = np.random.default_rng(seed) if kind == "numpy" else torch.Generator().manual_seed(seed)
        policy.act(obs, out, generator=generator)
        outs.append(out)
    assert np.array_equal(outs[0], outs[1])
    assert not np.array_equal(outs[0], outs[2])


@pytest.mark.covers("A7")
def test_exported_module_equals_the_policy() -> None:
    _, policy = trained()
    module = policy.export_module()
    obs, out = observations(), np.empty((33, 3), np.float32)
    policy.act(obs, out, deterministic=True)
    np.testing.assert_allclose(module(torch.from_numpy(obs)), out, rtol=0, atol=1e-5)
    assert not any(p.requires_grad for p in module.parameters())
    policy.load(np.zeros(policy.size, np.float32))  # the module has its own copy
    np.testing.assert_allclose(module(torch.from_numpy(obs)), out, rtol=0, atol=1e-5)


def test_unloaded_policy_is_centred_in_the_box() -> None:
    policy = Policy(small_config(), SPEC)
    out = np.empty((4, 3), np.float32)
    policy.act(observations(4), out, deterministic=True)
    np.testing.assert_allclose(out, np.tile((LOW + HIGH) / 2, (4, 1)), atol=1e-6)


@pytest.mark.parametrize("value", [-1e6, 1e6])
def test_actions_stay_within_their_bounds(value: float) -> None:
    # Bounds whose half range and centre do not add up exactly in float32.
    spec = EnvSpec(2, 2, (-0.1, 0.3), (0.7, 1.1))
    config = small_config()
    policy = Policy(config, spec)
    vector = np.zeros(policy.size, np.float32)
    head_bias = policy.size - 2 * spec.obs_dim
    module = dict(policy._actor.named_parameters())
    offset = 0
    for name, parameter in module.items():
        if name == "mlp.biases.3":
            head_bias = offset
        offset += parameter.numel()
    vector[head_bias : head_bias + 2] = value
    policy.load(vector)
    out = np.empty((5, 2), np.float32)
    policy.act(np.zeros((5, 2), np.float32), out, deterministic=True)
    assert (out >= np.array(spec.action_low, np.float32)).all()
    assert (out <= np.array(spec.action_high, np.float32)).all()
    assert np.allclose(out, spec.action_high if value > 0 else spec.action_low)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_random_actions_fill_the_box(kind: str) -> None:
    policy = Policy(small_config(), SPEC)
    out = np.empty((4000, 3), np.float32)
    policy.random_actions(
        out, np.random.default_rng(0) if kind == "numpy" else torch.Generator().manual_seed(0)
    )
    assert (out >= LOW).all() and (out <= HIGH).all()
    np.testing.assert_allclose(out.mean(0), (LOW + HIGH) / 2, atol=0.1)
    np.testing.assert_allclose(out.std(0), (HIGH - LOW) / np.sqrt(12), rtol=0.05)


def test_vector_of_another_network_is_refused() -> None:
    policy = Policy(small_config(), SPEC)
    with pytest.raises(ValueError, match="policy vector has shape"):
        policy.load(np.zeros(policy.size + 1, np.float32))


def test_read_only_arrays_are_taken(recwarn: pytest.WarningsRecorder) -> None:
    policy = Policy(small_config(), SPEC)
    vector, obs = np.zeros(policy.size, np.float32), observations(2)
    vector.flags.writeable = obs.flags.writeable = False
    policy.load(vector)
    policy.act(obs, np.empty((2, 3), np.float32), deterministic=True)
    assert not recwarn.list


def test_one_dimensional_observations_and_actions() -> None:
    policy = Policy(small_config(), EnvSpec(1, 1, (-1.0,), (1.0,)))
    out = np.empty((3, 1), np.float32)
    policy.act(np.ones((3, 1), np.float32), out, generator=np.random.default_rng(0))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("bounds", [((-np.inf,), (1.0,)), ((1.0,), (1.0,))])
def test_unusable_bounds_are_refused(bounds: tuple[tuple[float], tuple[float]]) -> None:
    with pytest.raises(ValueError, match="finite action bounds"):
        Policy(small_config(), EnvSpec(1, 1, *bounds))
