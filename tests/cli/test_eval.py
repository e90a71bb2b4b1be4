"""`motrix-rl eval` on runs that hold an untrained policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.checkpoint import BestStore, CheckpointStore
from motrix_rl.cli.main import main
from motrix_rl.config import RootConfig, dump_config, load_config
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.runs import RunDirectory
from motrix_rl.tasks.registry import env_spec

STEPS = 12


def saved_policy(config: RootConfig, spec: EnvSpec, generation: int, seed: int = 0) -> dict[str, Any]:
    """What a learner writes as `policy.pt`."""
    size = Policy(config.algo.agent, spec).size
    vector = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 0.1
    return {
        "policy": vector,
        "agent": config.algo.agent.model_dump(mode="json"),
        "env_spec": dict(vars(spec)),
        "generation": generation,
        "updates": 0,
    }


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    config = load_config(
        [f"env.max_episode_steps={STEPS}", "algo.agent.actor_hidden_dim=8", "algo.agent.critic_hidden_dim=8"]
    )
    run = RunDirectory.create(tmp_path / "runs", "cartpole-swingup", "mujoco", "fastsac")
    run.config_path.write_text(dump_config(config))
    spec = env_spec("cartpole-swingup", "mujoco", config.env)
    store = CheckpointStore(run.checkpoints)
    for step in (10, 20):
        store.save_file(store.stage(step), "policy.pt", saved_policy(config, spec, step, seed=step))
        store.commit(step, {"generation": step})
    BestStore(run.best).save(10, saved_policy(config, spec, 10, seed=10), {"return_mean": 1.0})
    return run


def evaluate(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["eval", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_the_promised_keys(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluate(capsys, str(run.path), "--episodes", "4")
    assert result["episodes"] == 4
    assert result["length_mean"] == STEPS
    assert 0 <= result["return_mean"] <= STEPS
    assert result["return_ci95"] >= 0
    assert result["generation"] == 10
    assert evaluate(capsys, str(run.path), "--episodes", "4") == result
    assert evaluate(capsys, str(run.path), "--episodes", "4", "--seed", "2") != result


def test_a_run_means_its_best_policy_and_latest_its_newest(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path.parents[3])
    assert evaluate(capsys, "latest", "--episodes", "2")["generation"] == 10
    assert evaluate(capsys, "latest", "--episodes", "2", "--latest")["generation"] == 20
    first = str(run.checkpoints / "step_000000010")
    assert evaluate(capsys, first, "--episodes", "2", "--latest")["generation"] == 10
    assert evaluate(capsys, str(run.best), "--episodes", "2")["generation"] == 10


def test_more_episodes_than_worlds_and_a_single_one(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(capsys, str(run.path), "--episodes", "70")["episodes"] == 70
    assert evaluate(capsys, str(run.path), "--episodes", "1")["return_ci95"] is None
    assert main(["eval", str(run.path), "--episodes", "1"]) == 0
    assert capsys.readouterr().out.startswith("return ")


def test_without_a_best_policy_the_newest_checkpoint_is_taken(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in run.best.iterdir():
        path.unlink()
    run.best.rmdir()
    assert evaluate(capsys, str(run.path), "--episodes", "2")["generation"] == 20


@pytest.mark.covers("C5", "U1")
def test_what_cannot_be_evaluated_is_one_line(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run.path), "--episodes", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    damaged = run.checkpoints / "step_000000020"
    data = bytearray((damaged / "policy.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / "policy.pt").write_bytes(bytes(data))
    assert main(["eval", str(damaged)]) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert len(line.splitlines()) == 1
    (run.checkpoints / "step_000000010" / "policy.pt").unlink()
    assert main(["eval", str(run.path), "--latest"]) == 2
    line = capsys.readouterr().err
    assert f"error: {run.path} has no checkpoint that is whole: step_000000020: " in line
    assert "; step_000000010: " in line
    assert len(line.splitlines()) == 1
    run.release()  # its process is this one
    run.run_json.write_text("{ cut")
    assert main(["train", f"resume={run.path}"]) == 2
    assert "run.json cannot be read as a run record" in capsys.readouterr().err
    empty = RunDirectory.create(run.path.parents[2], "hopper", "mujoco", "fastsac")
    assert main(["eval", str(empty.path)]) == 2
    assert "has no checkpoint: the run ended before it saved one" in capsys.readouterr().err
    empty.record.begin()  # by this process, which lives
    assert main(["eval", str(empty.path)]) == 2
    assert "no checkpoint yet; it appears after checkpoint.interval" in capsys.readouterr().err
