"""In which directory a run goes on, and from which checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from motrix_rl.checkpoint import BestStore, CheckpointStore
from motrix_rl.config import load_config
from motrix_rl.errors import UsageError
from motrix_rl.runs import RunDirectory
from tests.e2e.running import options, word
from workers.learner_state import ResumePoint
from workers.planning import TrainingPlan, make_plan
from workers.resume import best_return, prepare_run

SCHEDULE = {"num_updates": 2, "base": 10, "anchor": 0, "mode": "strict"}


@pytest.fixture(scope="module")
def plan() -> TrainingPlan:
    return make_plan(load_config([word(key, value) for key, value in options().items()]))


def run_with(directory: Path, *generations: int, ended: bool = True) -> RunDirectory:
    """A run that has left checkpoints."""
    settings = [word(key, value) for key, value in options(run_dir=directory).items()]
    config = load_config(settings)
    start = prepare_run(config, make_plan(config))
    store = CheckpointStore(directory / "checkpoints", keep_last=9)
    for generation in generations:
        staging = store.stage(generation)
        store.save_file(staging, "rank0.pt", {"generation": generation})
        facts: dict[str, Any] = {
            "generation": generation,
            "updates": 2 * max(0, generation - 10),
            "schedule": SCHEDULE,
            "replay": False,
            "num_envs": 8,
            "world_size": 1,
        }
        store.commit(generation, facts)
    if ended:
        start.directory.record.finish("finished")
    start.directory.release()
    return start.directory


def prepared(plan: TrainingPlan, **changed: Any) -> Any:
    settings = {
        key: value for key, value in options(**changed).items() if key != "task" or "resume" not in changed
    }
    return prepare_run(load_config([word(key, value) for key, value in settings.items()]), plan)


def test_a_fresh_run_makes_its_directory(plan: TrainingPlan, tmp_path: Path) -> None:
    start = prepared(plan, run_dir=tmp_path / "run")
    assert (start.generation, start.checkpoint, start.best_return) == (0, None, None)
    record = start.directory.record.read()
    assert record["outcome"] == "running"
    assert record["resumed_from"] is None
    assert (tmp_path / "run" / "config.yaml").is_file()
    with pytest.raises(UsageError, match="run"):
        prepared(plan, run_dir=tmp_path / "run")


@pytest.mark.covers("C2")
def test_a_run_goes_on_in_its_own_directory_from_its_newest_checkpoint(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    run = run_with(tmp_path / "run", 20, 40)
    BestStore(run.best).save(30, {"x": 1}, {"return_mean": 12.5})
    start = prepared(plan, resume=run.path)
    assert start.directory == run
    assert start.generation == 40
    assert start.checkpoint is not None
    assert start.checkpoint.name == "step_000000040"
    assert start.best_return == best_return(run) == 12.5
    assert len(run.record.read()["history"]) == 1


@pytest.mark.covers("C2", "C5")
def test_a_damaged_checkpoint_is_passed_over_with_a_line(plan: TrainingPlan, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 20, 40)
    with open(run.checkpoints / "step_000000040" / "rank0.pt", "r+b") as file:
        file.truncate(10)
    start = prepared(plan, resume=run.path)
    assert start.generation == 20
    assert len(start.skipped) == 1
    assert "step_000000040" in start.skipped[0]


@pytest.mark.parametrize("how", ["run_dir", "checkpoint"])
def test_another_directory_is_used_where_something_would_be_overwritten(
    how: str, plan: TrainingPlan, tmp_path: Path
) -> None:
    run = run_with(tmp_path / "run", 20, 40)
    before = sorted(path.name for path in run.checkpoints.iterdir())
    if how == "run_dir":
        start = prepared(plan, resume=run.path, run_dir=tmp_path / "other")
        assert start.generation == 40
    else:
        start = prepared(plan, resume=run.checkpoints / "step_000000020", runs_root=tmp_path / "runs")
        assert start.generation == 20
    assert start.directory != run
    assert start.best_return is None
    assert sorted(path.name for path in run.checkpoints.iterdir()) == before
    assert run.record.read()["outcome"] == "finished"


def test_a_run_that_is_done_or_going_on_or_has_no_checkpoint_is_refused(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    done = run_with(tmp_path / "done", 60)
    with pytest.raises(UsageError, match=r"is at generation 60, and the run ends at .*=60; give a larger"):
        prepared(plan, resume=done.path)
    assert done.record.read()["outcome"] == "finished", "a refused resume changed the record"
    going_on = run_with(tmp_path / "going", 20, ended=False)
    assert going_on.record.read()["pid"] == os.getpid()
    with pytest.raises(UsageError, match="is still running"):
        prepared(plan, resume=going_on.path)
    empty = run_with(tmp_path / "empty")
    with pytest.raises(UsageError, match="no checkpoint"):
        prepared(plan, resume=empty.path)


@pytest.mark.covers("C2", "U1")
@pytest.mark.parametrize("how", ["resume", "auto"])
def test_a_run_that_another_is_just_going_on_with_is_refused(
    how: str, plan: TrainingPlan, tmp_path: Path
) -> None:
    """Of two that start at once, the second looks before the first has said in the record that it runs."""
    run = run_with(tmp_path / "run", 20)
    first = RunDirectory(run.path)
    first.claim()
    words = {"resume": run.path} if how == "resume" else {"resume": "auto", "run_dir": run.path}
    with pytest.raises(UsageError, match=rf"is still running \(process {os.getpid()} on "):
        prepared(plan, **words)
    assert run.record.read()["outcome"] == "finished"
    first.release()
    assert prepared(plan, **words).generation == 20


@pytest.mark.covers("C2")
def test_auto_takes_the_newest_run_of_the_task_and_starts_afresh_where_there_is_none(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    settings = options(resume="auto", runs_root=tmp_path / "runs")
    fresh = prepare_run(load_config([word(key, value) for key, value in settings.items()]), plan)
    assert (fresh.generation, fresh.checkpoint) == (0, None)
    fresh.directory.record.finish("failed", "nothing")
    run = run_with(tmp_path / "runs" / "named", 20, 40)
    again = prepare_run(load_config([word(key, value) for key, value in settings.items()]), plan)
    assert again.directory == run
    assert again.generation == 40


@pytest.mark.covers("C1", "D2")
def test_the_point_of_a_resume_is_read_from_the_manifest_alone(plan: TrainingPlan, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 40)
    newest = CheckpointStore(run.checkpoints).newest_valid(lambda line: pytest.fail(line))
    assert newest is not None
    point = ResumePoint.read(newest)
    assert (point.generation, point.updates, point.num_envs, point.has_replay) == (40, 60, 8, False)
    assert point.schedule.due(40) == 60


@pytest.mark.covers("C5", "C6", "U1")
def test_other_networks_are_refused_before_anything_is_overwritten(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    run = run_with(tmp_path / "run", 20)
    before = run.config_path.read_text()
    with pytest.raises(UsageError, match=r"num_atoms=21 does not fit .*saved with 11"):
        prepared(plan, resume=str(run.path), algo__agent__num_atoms=21)
    assert run.config_path.read_text() == before


@pytest.mark.covers("C5")
def test_the_configuration_stays_until_the_checkpoint_is_known_to_fit(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    """A configuration that was edited by hand does not tell that the checkpoint's shapes are others."""
    run = run_with(tmp_path / "run", 20)
    before = run.config_path.read_text()
    start = prepared(plan, resume=str(run.path), seed=7)
    assert start.config.seed == 7
    assert run.config_path.read_text() == before
