"""The directory of a run that goes on is made again, once, and what is lost is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from motrix_rl.runs import RunDirectory, RunKeeper, keeper


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setattr(keeper, "LOOK_S", 0.0)
    run = RunDirectory.create(tmp_path, "task", "mujoco", "fastsac", tmp_path / "run")
    run.config_path.write_text("task: task\n")
    return run


def contents(run: RunDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run.config_path, run.run_json)}


def test_a_deleted_directory_is_told_once_and_made_again(run: RunDirectory) -> None:
    said: list[str] = []
    kept, before = RunKeeper(run, said.append), contents(run)
    for _ in range(3):
        kept.look()
    assert said == []
    shutil.rmtree(run)
    kept.look()  # whoever deletes it may not be done
    assert said == [] and not run.path.exists()
    for _ in range(3):
        kept.look()
    assert len(said) == 1 and "\n" not in said[0]
    assert f"config.yaml and run.json of the running run in {run} were deleted or moved" in said[0]
    assert contents(run) == before
    assert run.checkpoints.is_dir()
    shutil.rmtree(run)
    for _ in range(3):
        kept.look()
    assert len(said) == 2


def test_what_was_moved_stays_where_it_went(run: RunDirectory, tmp_path: Path) -> None:
    said: list[str] = []
    kept = RunKeeper(run, said.append)
    (run.checkpoints / "step_000000010").mkdir()
    run.path.rename(tmp_path / "moved")
    for _ in range(2):
        kept.look()
    assert (tmp_path / "moved" / "checkpoints" / "step_000000010").is_dir()
    assert run.holds_run() and not list(run.checkpoints.iterdir())


def test_a_place_that_is_no_more_is_told_once_and_tried_again(run: RunDirectory) -> None:
    said: list[str] = []
    kept = RunKeeper(run, said.append)
    shutil.rmtree(run)
    run.path.touch()
    for _ in range(4):
        kept.look()
    assert len(said) == 1 and "cannot be made again" in said[0]
    run.path.unlink()
    for _ in range(4):
        kept.look()
    assert len(said) == 2 and run.holds_run()


def test_a_look_is_cheap(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LOOK_S", 60.0)
    kept = RunKeeper(run, pytest.fail)
    kept.look()
    shutil.rmtree(run)
    for _ in range(5):
        kept.look()
    assert not run.path.exists()


def test_a_file_that_is_written_anew_is_kept_as_it_is_now(run: RunDirectory) -> None:
    said: list[str] = []
    kept = RunKeeper(run, said.append)
    kept.replace(run.config_path, b"task: other\n")
    assert run.config_path.read_bytes() == b"task: other\n"
    run.config_path.unlink()
    kept.restore()
    assert run.config_path.read_bytes() == b"task: other\n"
    assert len(said) == 1
    shutil.rmtree(run)
    kept.replace(run.config_path, b"task: third\n")
    assert "config.yaml cannot be written and stays as it was" in said[1]
    follower = RunKeeper(run, said.append, is_owner=False)
    follower.replace(run.config_path, b"task: third\n")
    assert not run.path.exists()
