"""Whole runs from the command line: what they do, and what they leave."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from motrix_rl.checkpoint import CheckpointStore, load_file
from motrix_rl.config import load_saved
from tests.e2e.running import Run, options, strict_updates

STAMPED = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARN|WARNING|ERROR|CRIT\w*) +\S+ \| "
)

CARTPOLE = options(
    task="cartpole-swingup/mujoco.fastsac",
    algo__trainer__num_learning_iterations=200,
    algo__agent__learning_starts=400,
    checkpoint__interval=80,
    checkpoint__save_replay=True,
    eval__interval=100,
    logging__interval=50,
    logging__tensorboard=True,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of the default task that has ended."""
    with Run(tmp_path_factory.mktemp("whole") / "run", CARTPOLE) as run:
        assert run.finish() == 0, run.output
        run.assert_nothing_left()
        yield run


@pytest.mark.covers("D1", "R5")
def test_it_does_exactly_what_strict_owes_and_says_how_it_ended(finished: Run) -> None:
    record = finished.record()
    assert record["outcome"] == "finished"
    assert record["generation"] == 200
    assert record["updates"] == strict_updates(200, CARTPOLE) == 2 * 150
    assert record["env_steps"] == 1600
    assert f"finished: generation 200, {2 * 150} updates" in finished.output
    assert "Traceback" not in finished.output


@pytest.mark.covers("D10", "C4", "U3")
def test_the_run_directory_is_complete(finished: Run) -> None:
    here = finished.directory
    for name in ("config.yaml", "run.json", "metrics.jsonl", "best/policy.pt", "best/best.json"):
        assert (here / name).stat().st_size > 0, name
    assert list((here / "tensorboard").glob("events.*"))
    assert sorted(p.stem for p in (here / "logs").iterdir()) == [
        "collector-0",
        "evaluator",
        "learner-0",
        "supervisor",
    ]
    assert list((here / "async_errors").iterdir()) == []
    steps = sorted(path.name for path in (here / "checkpoints").glob("step_*"))
    assert steps == ["step_000000080", "step_000000160", "step_000000200"]
    assert (here / "checkpoints" / "latest").resolve().name == steps[-1]
    assert not [path for path in (here / "checkpoints").iterdir() if path.name.startswith(".")]
    record = finished.record()
    assert record["topology"]["collectors"][0]["num_envs"] == 8
    assert {"argv", "versions", "git", "machine", "started_at", "ended_at"} <= record.keys()


@pytest.mark.covers("D10", "D13")
def test_metrics_are_one_record_an_interval_that_adds_up(finished: Run) -> None:
    records = finished.metrics()
    train = [record for record in records if record["kind"] == "train"]
    assert [record["generation"] // 50 for record in train][:4] == [1, 2, 3, 4]
    for record in train:
        assert record["updates"] == record["updates_due"] == strict_updates(record["generation"], CARTPOLE)
        assert record["env_steps"] == 8 * record["generation"]
        assert record["nonfinite"] == 0
    lags = [record["policy_lag_max"] for record in train if record["policy_lag_max"]]
    assert lags, "no policy lag was reported"
    assert max(lags) <= (4 + 1) * 2 + 4
    assert train[-1]["losses"]["critic_loss"] > 0
    evaluations = [record["eval"] for record in records if record["kind"] == "eval"]
    assert evaluations[-1]["generation"] == 200


@pytest.mark.covers("U3")
def test_every_line_of_every_log_has_time_and_level(finished: Run) -> None:
    for path in (finished.directory / "logs").iterdir():
        lines = path.read_text().splitlines()
        assert lines or path.stem == "supervisor"  # it has nothing to say of a run without a fault
        for line in lines:
            assert STAMPED.match(line), f"{path.name}: {line}"
            assert f" {path.stem} | " in line


@pytest.mark.covers("C1", "D1", "D2")
def test_resume_goes_on_in_the_same_directory_exactly(finished: Run, tmp_path: Path) -> None:
    here = tmp_path / "run"
    shutil.copytree(finished.directory, here, symlinks=True)
    settings = {"resume": here, "algo.trainer.num_learning_iterations": 260, "algo.agent.num_updates": 3}
    with Run(here, settings, resumed=True) as run:
        assert run.finish() == 0, run.output
        run.assert_nothing_left()
        record = run.record()
        # The replay was saved, so nothing is refilled: the new rate holds from the first generation on.
        assert (record["generation"], record["updates"]) == (260, 300 + 3 * 60)
        assert record["resumed_from"].endswith("step_000000200")
        assert len(record["history"]) == 1
        generations = [r["generation"] for r in run.metrics() if r["kind"] == "train"]
        assert generations == sorted(generations)
        assert "resumed from" in run.log("learner-0")
    assert load_saved(here / "config.yaml").algo.agent.num_updates == 3
    newest = CheckpointStore(here / "checkpoints").newest_valid(lambda line: pytest.fail(line))
    assert newest is not None
    assert newest.step == 260
    # The worlds begin anew, but not with the episodes of the first start.
    obs = load_file(newest, "replay0.pt")["obs"]
    envs = CARTPOLE["num_envs"]
    assert not (obs[200 * envs : 201 * envs] == obs[:envs]).all()


@pytest.mark.covers("U1")
def test_a_run_that_is_done_is_not_resumed(finished: Run, tmp_path: Path) -> None:
    with Run(finished.directory, {"resume": finished.directory}, resumed=True) as run:
        assert run.finish(60) == 2
        assert "is at generation 200, and the run ends at" in run.output
        assert "Traceback" not in run.output


@pytest.mark.covers("D3", "R8", "D7")
def test_two_collectors_and_a_learner_that_sets_the_pace(tmp_path: Path) -> None:
    settings = options(async__num_collectors=2, async__utd_mode="learner_bound", eval__interval=30)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 0, run.output
        run.assert_nothing_left()
        record = run.record()
        assert record["generation"] == 60
        assert 0 < record["updates"] <= strict_updates(60, settings)
        assert record["updates"] % 2 == 0
        assert "collecting environments 0 to 3" in run.log("collector-0")
        assert "collecting environments 4 to 7" in run.log("collector-1")
        last = [r for r in run.metrics() if r["kind"] == "train"][-1]
        # Episodes of the toy last 20 steps: each of 8 worlds has ended three of them.
        assert last["episodes"] == 24
        assert last["return_window"] == 24
        assert last["length_mean"] == 20
        assert last["episodes_aborted"] == 0


@pytest.mark.covers("D2")
def test_a_run_that_ends_in_its_warm_up_waits_for_nobody(tmp_path: Path) -> None:
    settings = options(algo__agent__learning_starts=8000, eval__interval=20)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 0, run.output
        record = run.record()
        assert (record["updates"], record["outcome"]) == (0, "finished")
        train_s = [r for r in run.metrics() if r["kind"] == "train"][-1]["elapsed_s"]
        assert train_s < 8
        assert "not gone after" not in run.output
        log = run.log("evaluator")
        assert log.rstrip().endswith("done")
        assert record["last_eval"]["generation"] == 60
