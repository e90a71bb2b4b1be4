"""`deterministic=true`: the same bits whatever the speeds, also through a stop and a resume, on one machine or two."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.comparing import checkpoint_state, differences
from tests.e2e.running import Run, options

pytestmark = pytest.mark.timeout(600)


def delays(which: int, workers: int) -> str:
    """Delays in different places, so that other processes are the slow ones each time.

    Args:
        which: 0 slows collectors, 1 learners, 2 this and that for a moment.
        workers: collectors, and learners, in the run.
    """
    orders = {
        0: ["slow:collector-0:stepping:1+:0.006", "slow:collector-1:acting:1+:0.003"],
        1: ["slow:learner-0:ingesting:1+:0.01", "slow:learner-1:updating:1+:0.007"],
        2: [
            "slow:collector-0:acting:11:0.3",
            "slow:learner-0:updating:5:0.4",
            "slow:collector-1:stepping:7:0.3",
        ],
    }[which]
    return ";".join(order for order in orders if workers > 1 or "-1:" not in order)


def settings_of(task: str, half: int, **changed: Any) -> dict[str, Any]:
    """A run of ``2 * half`` generations with a checkpoint half way."""
    return options(
        task=f"{task}/mujoco.fastsac",
        deterministic=True,
        checkpoint__save_replay=True,
        checkpoint__interval=half,
        algo__trainer__num_learning_iterations=2 * half,
        **changed,
    )


def train(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    settings: dict[str, Any],
    faults: str = "",
    *,
    resumed: bool = False,
) -> Path:
    """One whole run with delays in it."""
    monkeypatch.setenv("MOTRIX_RL_FAULT", faults)
    with Run(directory, settings, resumed=resumed) as run:
        assert run.finish(400) == 0, run.output
        run.assert_nothing_left()
    return directory


def assert_halves_are_the_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, task: str, half: int, **changed: Any
) -> None:
    """N + resume + N equals 2 N, and so does another run of the same seed at other speeds."""
    settings = settings_of(task, half, **changed)
    workers = changed.get("async__num_learners", 1)
    whole = train(monkeypatch, tmp_path / "whole", settings, delays(0, workers))
    first = {**settings, "algo.trainer.num_learning_iterations": half}
    halves = train(monkeypatch, tmp_path / "halves", first, delays(1, workers))
    second = {"resume": halves, "algo.trainer.num_learning_iterations": 2 * half, "logging.console": "plain"}
    train(monkeypatch, halves, second, delays(2, workers), resumed=True)
    assert differences(whole, halves, 2 * half) == []


@pytest.mark.covers("C1", "D5")
@pytest.mark.parametrize("lag", [0, 1])
def test_halves_are_the_whole(lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_halves_are_the_whole(monkeypatch, tmp_path, "cartpole-swingup", 25, lag=lag)


@pytest.mark.covers("C1", "D5")
@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("task", ["cartpole-swingup", "halfcheetah"])
def test_halves_are_the_whole_with_many(
    task: str, lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many: dict[str, Any] = {"async__num_collectors": 2, "async__num_learners": 2}
    assert_halves_are_the_whole(monkeypatch, tmp_path, task, 40, lag=lag, eval__interval=30, **many)


@pytest.mark.covers("C1", "D5")
@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("task", ["cartpole-swingup", "halfcheetah"])
def test_long_halves_are_the_whole(
    task: str, lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long enough for episodes to end, the replay to wrap round and weights to have gone their own way."""
    assert_halves_are_the_whole(
        monkeypatch, tmp_path, task, 300, lag=lag, eval__interval=200, algo__agent__buffer_size=2000
    )


@pytest.mark.covers("C1")
@pytest.mark.slow
def test_another_seed_gives_other_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: it is not one of empty things."""
    one = train(monkeypatch, tmp_path / "one", settings_of("cartpole-swingup", 15, seed=1))
    other = train(monkeypatch, tmp_path / "other", settings_of("cartpole-swingup", 15, seed=2))
    found = differences(one, other, 30)
    assert any(path.startswith("rank0.pt/agent/replicated/actor.param") for path in found)
    assert any(path.startswith("replay0.pt/obs") for path in found)
    assert any(path.startswith("collector0") for path in found)


@pytest.mark.covers("C1", "D5")
@pytest.mark.slow
def test_two_machines_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two supervisors under torchrun on loopback, one learner and one collector each: the same bits as one."""
    one = train(
        monkeypatch,
        tmp_path / "one",
        settings_of("cartpole-swingup", 30, async__num_collectors=2, async__num_learners=2),
        delays(0, 2),
    )
    two = tmp_path / "two"
    settings = settings_of("cartpole-swingup", 30)
    port = free_port()
    with contextlib.ExitStack() as runs:
        # A delay is ordered where its worker is: each supervisor knows its own machine's only.
        monkeypatch.setenv("MOTRIX_RL_FAULT", "slow:learner-0:updating:1+:0.004")
        leader = runs.enter_context(Run(two, settings, torchrun(0, port)))
        monkeypatch.delenv("MOTRIX_RL_FAULT")
        follower = runs.enter_context(Run(two, settings, torchrun(1, port)))
        assert leader.finish(400) == 0, leader.output
        assert follower.finish(60) == 0, follower.output
    assert [path for path in differences(one, two, 60) if not path.startswith("policy.pt")] == []
    assert checkpoint_state(two, 60).keys() >= {"rank0.pt", "rank1.pt", "collector0.pt", "collector1.pt"}
    shutil.rmtree(two)


def free_port() -> int:
    """A port of loopback that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(node: int, port: int) -> list[str]:
    """Words before the interpreter's own that start it under torchrun; that interpreter's name is taken off."""
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--nproc-per-node=1",
        f"--node-rank={node}",
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
        "--no-python",
    ]
    return words
