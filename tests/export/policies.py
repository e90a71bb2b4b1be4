"""Runs that hold a policy of random weights, for export, play and evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from motrix_rl.algorithms.fastsac.policy import make_actor
from motrix_rl.checkpoint import BestStore
from motrix_rl.config import dump_config, load_config
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.runs import RunDirectory
from motrix_rl.tasks.registry import env_spec, parse_task

SMALL = ("algo.agent.actor_hidden_dim=16", "algo.agent.critic_hidden_dim=16")


def saved_policy(config: Any, spec: EnvSpec, generation: int = 7, seed: int = 0) -> dict[str, Any]:
    """What an evaluator writes as `policy.pt`: weights of an active policy, and a normaliser that matters."""
    random = torch.Generator().manual_seed(seed)
    actor = make_actor(config.algo.agent, spec, random)
    torch.nn.init.normal_(actor.mlp.weights[-1], generator=random)  # a fresh actor's last layer is zero
    shift = torch.randn(spec.obs_dim, generator=random)
    scale = torch.rand(spec.obs_dim, generator=random) + 0.2
    vector = torch.cat([*(parameter.detach().flatten() for parameter in actor.parameters()), shift, scale])
    return {
        "policy": vector,
        "agent": config.algo.agent.model_dump(mode="json"),
        "env_spec": dict(vars(spec)),
        "generation": generation,
        "updates": 0,
    }


def make_run(root: Path, *words: str, spec: EnvSpec | None = None) -> RunDirectory:
    """A run directory with a best policy, as a training of `words` would leave it."""
    config = load_config([*words, *SMALL])
    task = parse_task(config.task)
    run = RunDirectory.create(root / "runs", task.task, task.backend, task.algo)
    run.config_path.write_text(dump_config(config))
    spec = spec or env_spec(task.task, task.backend, config.env)
    BestStore(run.best).save(7, saved_policy(config, spec), {"return_mean": 1.0, "generation": 7})
    return run
