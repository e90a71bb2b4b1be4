"""B1: the stages and the whole, in one run; the figures' arithmetic by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from motrix_rl.algorithms.fastsac.config import FastSACConfig
from motrix_rl.cli.main import main
from motrix_rl.envs.spec import EnvSpec
from workers.bench.figures import Figure, figure
from workers.flops import update_flops

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "task=cartpole-swingup/mujoco.fastsac",
    "num_envs=8",
    "algo.agent.num_updates=2",
    "algo.agent.batch_size=32",
    "algo.agent.actor_hidden_dim=16",
    "algo.agent.critic_hidden_dim=16",
    "algo.agent.learning_starts=64",
    "algo.agent.buffer_size=8000",
)


def bench(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, since it starts others."""
    code = "from motrix_rl.cli.main import entry\nif __name__ == '__main__':\n    entry()\n"
    script = tmp_path / "bench_command.py"
    script.write_text(code)
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), "bench", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )
    assert list(temporary.iterdir()) == []  # neither run directory nor anything else is left
    return done


@pytest.mark.covers("B1")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_stage_and_the_whole_in_one_run(tmp_path: Path) -> None:
    done = bench(tmp_path, *SMALL, "--seconds", "0.3", "--rounds", "3", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    names = (
        "physics_only", "env_only", "inference_only", "collector_only", "learner_only", "end_to_end",
        "end_to_end_updates",
    )  # fmt: skip
    for name in names:
        assert len(found[name]["values"]) == 3
        assert 0 < found[name]["min"] <= found[name]["median"] <= found[name]["max"]
    # The same threads do more in the physics alone than with the environment around it.
    assert found["physics_only"]["median"] > found["env_only"]["median"]
    parts = [found[name]["values"] for name in ("env_acted", "inference_only", "collector_only")]
    shares = [whole * (1 / step + 1 / act) for step, act, whole in zip(*parts, strict=True)]
    assert found["collector_share"]["values"] == pytest.approx(shares)
    rates = [rate * 8 / 2 for rate in found["learner_updates"]["values"]]
    assert found["learner_only"]["values"] == pytest.approx(rates)
    stages = [found[name]["values"] for name in ("env_only", "collector_only", "learner_only")]
    limits = [min(together) for together in zip(*stages, strict=True)]
    by_hand = [whole / limit for whole, limit in zip(found["end_to_end"]["values"], limits, strict=True)]
    assert found["ratio"]["values"] == pytest.approx(by_hand)
    assert found["limit"] in ("env_only", "collector_only", "learner_only")
    assert found["share_of"]["env_only"] == pytest.approx(
        found["end_to_end"]["median"] / found["env_only"]["median"]
    )
    # Strict UTD: two updates a generation of eight steps, up to what was under way at the interval's ends.
    updates, steps = found["end_to_end_updates"]["median"], found["end_to_end"]["median"]
    assert updates == pytest.approx(steps / 8 * 2, rel=0.5)
    assert found["replay_transitions"] == 8000
    assert "CPUs of" in found["machine"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_update_beside_products_and_start(tmp_path: Path) -> None:
    done = bench(tmp_path, "learner", *SMALL, "--seconds", "0.2", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    by_hand = [
        rate * found["flops_per_update"] / 1e9 / gemm
        for rate, gemm in zip(found["updates_per_s"]["values"], found["gemm_gflop_s"]["values"], strict=True)
    ]
    assert found["share_of_gemm"]["values"] == pytest.approx(by_hand)
    assert 0 < found["share_of_gemm"]["median"] < 1

    done = bench(tmp_path, "start", *SMALL, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert list(found["steps_s"]) == ["command", "plan", "spawn", "workers", "warm-up", "first update"]
    assert found["total_s"] == pytest.approx(sum(found["steps_s"].values()))
    assert {worker["name"] for worker in found["workers"]} == {"learner-0", "collector-0"}
    slowest = max(worker["ready_s"] for worker in found["workers"])
    assert slowest <= found["steps_s"]["workers"] + found["steps_s"]["spawn"] + 0.5


def test_a_worker_that_fails_ends_the_bench_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from motrix_rl.envs.mujoco.cartpole_swingup import CartpoleSwingup\n"
        "class Failing(CartpoleSwingup):\n"
        "    def evaluate_step(self, action, reward, terminated):\n"
        "        raise RuntimeError('no reward today')\n"
    )
    done = bench(tmp_path, *SMALL[1:], "task=failing:Failing/mujoco.fastsac", "--seconds", "0.2")
    assert done.returncode == 1
    assert "no reward today" in done.stderr
    assert "error: collector-0" in done.stderr
    assert done.stdout == ""


def test_the_ring_beside_a_copy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motrix_rl.cli.bench.RING_SLOTS", (20_000,))
    assert main(["bench", "ring", "--seconds", "0.1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["ratio"] == pytest.approx(found["ring_gb_s"] / found["copy_gb_s"])
    assert main(["bench", "ring", "--seconds", "0.1"]) == 0
    assert "GB/s" in capsys.readouterr().out


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rign"], "did you mean 'ring'?"),
        (["ring", "num_envs=8"], "takes no options"),
        (["stages", "ring"], "'ring'"),
        (["num_env=8"], "'num_envs'"),
        (["--seconds", "0"], "above 0"),
        (["resume=auto"], "leave resume out"),
        (["num_envs=33", "algo.trainer.async_options.num_collectors=2"], "32"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(Path(tempfile.gettempdir()).glob("motrix-bench-*"))
    assert main(["bench", *words]) == 2
    line = capsys.readouterr().err
    assert expected in line
    assert line.startswith("error: ")
    assert len(line.splitlines()) == 1
    assert set(Path(tempfile.gettempdir()).glob("motrix-bench-*")) == before


def test_operations_of_an_update_by_hand() -> None:
    spec = EnvSpec(obs_dim=3, action_dim=2, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
    config = FastSACConfig(
        actor_hidden_dim=8, critic_hidden_dim=16, num_q_networks=2, num_atoms=5, policy_frequency=2
    )
    actor = 3 * 8 + 8 * 4 + 4 * 2 + 2 * 4  # head: means and log deviations
    critic = 5 * 16 + 16 * 8 + 8 * 4 + 4 * 5
    targets = actor + 2 * critic
    critics = 2 * critic + 2 * critic + 2 * (critic - 5 * 16)  # forward; to the weights; to the inputs
    actors = actor + 2 * critic + 2 * (critic - 5 * 16 + 2 * 16) + actor + (actor - 3 * 8)
    assert update_flops(config, spec, 10) == 2 * 10 * (targets + critics + actors / 2)
    assert update_flops(config, spec, 20) == 2 * update_flops(config, spec, 10)


def test_figures_state_their_noise() -> None:
    measured = figure([4.0, 2.0, 3.0])
    assert (measured.median, measured.spread) == (3.0, pytest.approx(2 / 3))
    assert measured.text() == "3 (2 to 4)"
    assert measured.times(2.0) == Figure((8.0, 4.0, 6.0))
    assert measured.data()["values"] == [4.0, 2.0, 3.0]
