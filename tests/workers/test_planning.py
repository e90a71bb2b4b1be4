"""The sizes a plan is made with are those that the parts have."""

from __future__ import annotations

from typing import Any

import pytest

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.config import load_config
from motrix_rl.config.schema import RootConfig
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.replay.buffer import ReplayBuffer
from tests.e2e.running import SMALL, options, word
from topology import TopologyError
from transport import SlotLayout
from workers.learner import replay_rows
from workers.planning import byte_sizes, make_plan, trainer_request

PLAIN = EnvSpec(obs_dim=5, action_dim=1, action_low=(-1.0,), action_high=(1.0,))
TWO_SIGHTED = EnvSpec(
    obs_dim=48, action_dim=12, action_low=(-1.0,) * 12, action_high=(1.0,) * 12, critic_obs_dim=77
)


def config_of(**changed: Any) -> RootConfig:
    return load_config([word(key, value) for key, value in options(**changed).items()])


@pytest.mark.covers("T6")
@pytest.mark.parametrize("spec", [PLAIN, TWO_SIGHTED], ids=["plain", "critic sees more"])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"num_envs": 24, "algo__agent__buffer_size": 1000, "algo__agent__n_step": 3},
        {
            "algo__agent__num_q_networks": 4,
            "algo__agent__actor_hidden_dim": 128,
            "algo__agent__num_atoms": 51,
        },
        {"algo__agent__obs_normalization": False, "algo__agent__critic_hidden_dim": 64},
    ],
    ids=["small", "odd", "large", "bare"],
)
def test_bytes_are_those_of_agent_replay_and_slots(spec: EnvSpec, changed: dict[str, Any]) -> None:
    config = config_of(**changed)
    agent_config = config.algo.agent
    sizes = byte_sizes(config, spec)
    agent = FastSACAgent(agent_config, spec, device="cpu", init_seed=0, sample_seed=0)
    assert sizes["policy_bytes"] == 4 * agent.policy_size
    replay = ReplayBuffer(
        num_envs=config.num_envs,
        capacity=replay_rows(agent_config.buffer_size, config.num_envs, agent_config.n_step),
        obs_dim=spec.obs_dim,
        critic_obs_dim=spec.critic_obs_dim,
        action_dim=spec.action_dim,
        n_step=agent_config.n_step,
        gamma=agent_config.gamma,
        device="cpu",
    )
    assert sizes["replay_bytes"] == replay.nbytes
    layout = SlotLayout.for_shard(config.num_envs, spec.obs_dim, spec.action_dim, spec.critic_obs_dim)
    assert layout.nbytes <= sizes["slot_bytes_per_env"] * config.num_envs < layout.nbytes + config.num_envs
    held = sum(tensor.nbytes for tensor in agent.all_tensors().values())
    assert held <= sizes["learner_bytes"] < 8 * held


@pytest.mark.covers("T3")
def test_what_does_not_divide_is_refused_before_a_simulator_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import workers.planning as planning

    monkeypatch.setattr(planning, "env_spec", lambda *_: pytest.fail("a simulator was loaded"))
    with pytest.raises(TopologyError, match=r"num_envs"):
        make_plan(config_of(num_envs=9, async__num_collectors=2))


def test_a_plan_says_who_runs_where_and_starts_nothing() -> None:
    plan = make_plan(config_of(async__num_collectors=2, eval__interval=50))
    assert [info.num_envs for info in plan.topology.collectors] == [4, 4]
    assert plan.topology.evaluator is not None
    assert plan.env_spec.obs_dim == 3
    assert plan.policy_size == plan.request.policy_bytes // 4


@pytest.mark.parametrize(
    ("hidden", "batch", "learners", "cores"),
    [(128, 256, 1, 1), (256, 256, 1, 1), (768, 256, 1, 2), (768, 256, 2, 1), (768, 8192, 1, 16)],
)
def test_a_learner_on_cpus_gets_cores_by_the_size_of_its_updates(
    hidden: int, batch: int, learners: int, cores: int
) -> None:
    config = config_of(
        algo__agent__actor_hidden_dim=hidden,
        algo__agent__critic_hidden_dim=hidden,
        algo__agent__batch_size=batch,
        async__num_learners=learners,
    )
    spec = make_plan(config_of()).env_spec
    assert trainer_request(config, spec).max_cpu_learner_cores == cores


def test_without_evaluation_there_is_no_evaluator() -> None:
    assert not trainer_request(config_of(eval__interval=0), None).evaluator
    assert SMALL["eval.interval"] == 0
