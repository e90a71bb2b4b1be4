"""The agent: what is trained when, what is counted, and a state that goes on to the bit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

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


@pytest.mark.covers("A6")
@pytest.mark.parametrize("policy_frequency", [1, 2, 3, 5])
@pytest.mark.parametrize("num_updates", [1, 2, 4])
def test_actor_is_trained_at_every_frequency(policy_frequency: int, num_updates: int) -> None:
    agent = make_agent(small_config(policy_frequency=policy_frequency, num_updates=num_updates))
    replay = filled_replay(agent)
    for _ in range(30 // num_updates):
        agent.update(replay, num_updates)
    done = 30 // num_updates * num_updates
    assert agent.updates_done == done
    assert float(agent.critic_group.optimizer.steps) == done
    assert float(agent.actor_group.optimizer.steps) == done // policy_frequency


@pytest.mark.covers("A6")
def test_everything_that_should_move_moves() -> None:
    agent = make_agent(small_config())
    replay = filled_replay(agent)
    before = {name: tensor.clone() for name, tensor in agent.all_tensors().items()}
    agent.update(replay, 4)
    for name in ("actor.param", "critic.param", "target"):
        # The zero-initialised log-std head of the actor included: every element has had a step.
        assert (agent.all_tensors()[name] != before[name]).float().mean() > 0.99, name
    assert agent.log_alpha != before["critic.param"][-1]
    expected = before["target"].clone()
    one = make_agent(small_config())
    one.update_on(random_batch(16), torch.zeros(16, 3), torch.zeros(16, 3))
    expected.lerp_(one.critic_group.param[:-1], 0.01)
    torch.testing.assert_close(one.target_flat, expected)


def test_each_update_has_a_batch_of_its_own_and_is_announced() -> None:
    agent = make_agent(small_config())
    replay = filled_replay(agent)
    seen: list[Tensor] = []
    announced: list[int] = []
    sample = replay.sample

    def spy(*args: Any) -> Any:
        batch = sample(*args)
        seen.append(batch.action.clone())
        return batch

    replay.sample = spy  # type: ignore[method-assign]
    agent.update(replay, 5, on_update=announced.append)
    assert announced == [1, 2, 3, 4, 5]
    assert len({tuple(actions.flatten().tolist()) for actions in seen}) == 5


def test_obs_and_next_obs_are_normalised_alike() -> None:
    agent = make_agent(small_config())
    obs = np.random.default_rng(0).normal(50.0, 3.0, (100, 5)).astype(np.float32)
    nothing = np.zeros(100)
    agent.observe(obs, reward=nothing, terminated=nothing, truncated=nothing, cut=nothing)
    agent.sync_statistics()
    batch = random_batch(8)
    batch.observations[1] = batch.observations[0]
    inputs = agent.statistics.inputs(batch)
    assert torch.equal(inputs.obs, inputs.next_obs)
    assert not torch.allclose(inputs.obs, batch.obs)


def test_rewards_are_scaled_when_sampled() -> None:
    agent = make_agent(small_config())
    replay = filled_replay(agent)
    scale = agent.statistics.reward.scale.clone()  # type: ignore[union-attr]
    batch = replay.sample(16, agent.generator)
    torch.testing.assert_close(agent.statistics.inputs(batch).reward, batch.reward * scale)
    agent.statistics.reward.scale.mul_(2)  # type: ignore[union-attr]
    torch.testing.assert_close(agent.statistics.inputs(batch).reward, batch.reward * scale * 2)


@pytest.mark.covers("A3")
def test_terminated_windows_do_not_see_the_next_observation() -> None:
    agents = [make_agent(small_config()) for _ in range(2)]
    for value, agent in zip((0.0, 100.0), agents, strict=True):
        batch = random_batch(16)
        batch.bootstrap.zero_()
        batch.observations[1] = value
        inputs = agent.statistics.inputs(batch)
        agent.objectives.critic_gradients(inputs, torch.zeros(16, 3))
    # To rounding: the same mass is summed from other parts.
    a, b = (agent.critic_group.grad[:-1] for agent in agents)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_rows_without_weight_teach_the_critics_nothing() -> None:
    agents = [make_agent(small_config()) for _ in range(2)]
    for value, agent in zip((0.0, 3.0), agents, strict=True):
        batch = random_batch(16)
        batch.weight[:4] = 0.0
        batch.reward[:4] = value
        agent.objectives.critic_gradients(agent.statistics.inputs(batch), torch.zeros(16, 3))
    assert torch.equal(agents[0].critic_group.grad[:-1], agents[1].critic_group.grad[:-1])


@pytest.mark.covers("D9", "D1")
def test_skipped_update_counts_as_done_and_shows_in_the_metrics() -> None:
    agent = make_agent(small_config(policy_frequency=1))
    good, noise = random_batch(16), torch.randn(2, 16, 3)
    agent.update_on(good, noise[0], noise[1])
    before = agent.critic_group.param.clone()
    bad = random_batch(16)
    bad.reward[3] = float("nan")
    agent.update_on(bad, noise[0], torch.full_like(noise[1], float("nan")))
    assert agent.updates_done == 2
    assert torch.equal(agent.critic_group.param, before)
    metrics = agent.metrics()
    assert metrics["nonfinite_skips"] == 2.0  # critics and actor
    assert all(np.isfinite(value) for value in metrics.values())
    agent.update_on(good, noise[0], noise[1])
    assert not torch.equal(agent.critic_group.param, before)


def test_metrics_name_what_was_promised_and_start_again() -> None:
    agent = make_agent(small_config())
    replay = filled_replay(agent)
    agent.update(replay, 20)
    metrics = agent.metrics()
    assert metrics.keys() >= {
        "critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean", "critic_grad_norm",
        "actor_grad_norm", "nonfinite_skips", "v_edge_mass", "target_entropy", "reward_scale", "updates_done",
    }  # fmt: skip
    # Cross entropy of two critics over 11 atoms: near 2 log 11 = 4.8 at the start, and falling.
    assert 3.0 < metrics["critic_loss"] < 5.3
    assert "critic_loss" not in agent.metrics()


def reachable_tensors(thing: Any, path: str, found: dict[str, Tensor], seen: set[int]) -> None:
    """Every tensor that can be reached from an object of this package or torch module."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        found[path] = thing
    elif isinstance(thing, nn.Module):
        found.update({f"{path}.{name}": tensor for name, tensor in thing.state_dict(keep_vars=True).items()})
    elif isinstance(thing, dict):
        for key, value in thing.items():
            reachable_tensors(value, f"{path}.{key}", found, seen)
    elif isinstance(thing, list | tuple):
        for index, value in enumerate(thing):
            reachable_tensors(value, f"{path}[{index}]", found, seen)
    elif type(thing).__module__.startswith("motrix_rl") and hasattr(thing, "__dict__"):
        for key, value in vars(thing).items():
            reachable_tensors(value, f"{path}.{key}", found, seen)


@pytest.mark.covers("D8")
@pytest.mark.parametrize("spec", [SPEC, CRITIC_SPEC], ids=["shared obs", "own critic obs"])
def test_every_tensor_is_broadcast_or_known_to_be_local(spec: Any) -> None:
    agent = make_agent(small_config(amp=True, amp_dtype="fp16"), spec)
    found: dict[str, Tensor] = {}
    reachable_tensors(agent, "agent", found, set())
    known = [*agent.all_tensors().values(), agent.actor_group.grad, agent.critic_group.grad]
    shared = {tensor.untyped_storage().data_ptr() for tensor in known}
    left = {name for name, t in found.items() if t.numel() and t.untyped_storage().data_ptr() not in shared}
    # Derived from the configuration or from what is broadcast; this rank's own sums and statistics.
    expected = ("scaling.", "support", ".shift", ".scale", "_sums", ".pending")
    unknown = {name for name in left if not any(part in name for part in expected)}
    assert not unknown
    trainable = {tensor.untyped_storage().data_ptr() for tensor in agent.trainable_tensors().values()}
    for module in (agent.actor, agent.critic):
        for name, parameter in module.named_parameters():
            assert parameter.untyped_storage().data_ptr() in trainable, name
    assert not any(p.requires_grad for p in agent.target.parameters())


@pytest.mark.covers("D5", "D8")
def test_broadcasting_all_tensors_makes_replicas_equal() -> None:
    first, second = make_agent(small_config()), make_agent(small_config(), init_seed=9)
    first.update(filled_replay(first), 6)
    assert first.parameter_hash() != second.parameter_hash()
    for mine, theirs in zip(second.all_tensors().values(), first.all_tensors().values(), strict=True):
        mine.copy_(theirs)
    second.refresh()
    second.updates_done = first.updates_done
    assert first.parameter_hash() == second.parameter_hash()
    batch = random_batch(16)
    for agent in (first, second):
        agent.update_on(batch, torch.ones(16, 3), torch.ones(16, 3))
    assert first.parameter_hash() == second.parameter_hash()


def test_same_seed_same_weights_in_every_precision() -> None:
    single, double = make_agent(small_config()), make_agent(small_config(), dtype=torch.float64)
    assert torch.equal(single.critic_group.param[:-1].double(), double.critic_group.param[:-1])
    assert make_agent(small_config()).parameter_hash() == single.parameter_hash()
    assert make_agent(small_config(), init_seed=1).parameter_hash() != single.parameter_hash()


def saved(state: Any) -> Any:
    """Through a file, loaded the way checkpoints are."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.covers("C1")
@pytest.mark.parametrize("spec", [SPEC, CRITIC_SPEC], ids=["shared obs", "own critic obs"])
def test_n_resume_n_equals_2n_to_the_bit(spec: Any) -> None:
    config = small_config(policy_frequency=3, n_step=2)

    def half(agent: FastSACAgent, replay: Any, start: int) -> None:
        for generation in range(start, start + 10):
            feed(agent, replay, range(generation, generation + 1), seed=7)
            agent.update(replay, 4)

    agent = make_agent(config, spec)
    replay = filled_replay(agent)
    half(agent, replay, 30)
    agent_state, replay_state = saved(agent.state_dict()), saved(replay.state_dict())
    agent.metrics()  # what is told begins anew with a resume
    half(agent, replay, 40)

    other = make_agent(config, spec, init_seed=5, sample_seed=6)
    resumed = filled_replay(other, seed=8)
    resumed.load_state_dict(replay_state)
    other.load_state_dict(agent_state)
    half(other, resumed, 40)

    assert other.parameter_hash() == agent.parameter_hash()
    assert torch.equal(other.generator.get_state(), agent.generator.get_state())
    assert other.metrics() == agent.metrics()
    for name, part in agent.statistics.parts.items():
        for key, tensor in part.local_tensors().items():
            assert torch.equal(other.statistics.parts[name].local_tensors()[key], tensor), (name, key)


@pytest.mark.covers("C6")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actor_hidden_dim": 32}, "actor.param has shape"),
        ({"num_atoms": 21}, "critic.param has shape"),
        ({"reward_scaling": False}, "reward_scaler.merged unknown here"),
    ],
)
def test_state_of_another_agent_is_refused_and_changes_nothing(changes: Any, message: str) -> None:
    state = make_agent(small_config()).state_dict()
    other = make_agent(small_config(**changes))
    before = other.parameter_hash()
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)
    assert other.parameter_hash() == before


def test_without_local_state_running_returns_and_random_numbers_are_kept() -> None:
    agent, other = make_agent(small_config()), make_agent(small_config(), sample_seed=3)
    filled_replay(agent)
    random = other.generator.get_state()
    other.load_state_dict(agent.state_dict(), local=False)
    assert other.parameter_hash() == agent.parameter_hash()
    assert torch.equal(other.generator.get_state(), random)
    assert other.statistics.reward.returns.numel() == 0  # type: ignore[union-attr]


def test_scaled_rewards_need_rewards() -> None:
    with pytest.raises(ValueError, match="reward_scaling needs"):
        make_agent(small_config()).observe(np.zeros((2, 5), np.float32))


def test_options_off() -> None:
    config = small_config(
        obs_normalization=False, reward_scaling=False, use_autotune=False, max_grad_norm=0.5
    )
    agent = make_agent(config)
    agent.update(filled_replay(agent), 6)
    assert agent.metrics()["alpha"] == pytest.approx(config.alpha_init, rel=1e-6)
    batch = random_batch(4)
    inputs = agent.statistics.inputs(batch)
    assert torch.equal(inputs.obs, batch.obs) and torch.equal(inputs.reward, batch.reward)
    agent.sync_statistics()
