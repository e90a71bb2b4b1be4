from __future__ import annotations

import os
from pathlib import Path

import pytest

from motrix_rl.errors import UsageError
from motrix_rl.runs import RunDirectory, iter_runs, newest_run, resolve_run

CLOCK = iter(range(1, 1_000_000))


def make(root: Path, task: str = "cartpole-swingup", backend: str = "mujoco") -> RunDirectory:
    run = RunDirectory.create(root, task, backend, "fastsac")
    run.record.update({"started_unix": next(CLOCK), "outcome": "finished"})
    return run


def add_checkpoint(run: RunDirectory, step: int) -> Path:
    path = run.checkpoints / f"step_{step:09d}"
    path.mkdir(parents=True)
    (path / "manifest.json").touch()
    latest = run.checkpoints / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(path.name)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_latest_is_the_run_started_last(root: Path) -> None:
    with pytest.raises(UsageError, match="no run under"):
        resolve_run("latest", root)
    runs = [make(root), make(root, "hopper"), make(root)]
    assert resolve_run("latest", root).run_dir == runs[2]
    runs[1].record.update({"started_unix": next(CLOCK)})  # resumed
    found = resolve_run("latest", root)
    assert found.run_dir == runs[1] and found.checkpoint is None
    assert set(iter_runs(root)) == set(runs)


def test_best(root: Path) -> None:
    run = make(root)
    with pytest.raises(UsageError, match="no best policy yet"):
        resolve_run("best", root)
    run.best.mkdir()
    for ref in ("best", run.best):
        found = resolve_run(ref, root)
        assert (found.run_dir, found.checkpoint) == (run, run.best)


def test_directories(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(root)
    first, second = add_checkpoint(run, 10), add_checkpoint(run, 20)
    assert resolve_run(run).run_dir == run
    assert resolve_run(run.checkpoints).run_dir == run
    for ref, checkpoint in ((first, first), (second, second), (run.checkpoints / "latest", second)):
        found = resolve_run(ref)
        assert (found.run_dir, found.checkpoint) == (run, checkpoint)
    monkeypatch.chdir(root.parent)
    assert resolve_run(os.path.relpath(first)).checkpoint == first
    assert resolve_run(run.path.name).run_dir == run  # by its name alone


def test_nothing_of_that_name(root: Path, tmp_path: Path) -> None:
    run = make(root)
    add_checkpoint(run, 10)
    cases = {
        "nonsense": "valid: latest, best, or the directory of a run or checkpoint",
        "latst": "did you mean 'latest'",
        str(run.checkpoints / "step_000000011"): "did you mean 'step_000000010'",
        str(run.path)[:-1]: f"did you mean '{run.path.name}'",
        str(run.run_json): "is a file",
        str(root): f"holds runs but is none itself; did you mean '{run.path}'",
        str(tmp_path / "runs" / ".." / "runs" / "cartpole-swingup"): "holds runs but is none",
    }
    for ref, message in cases.items():
        with pytest.raises(UsageError, match=message) as caught:
            resolve_run(ref, root)
        assert "\n" not in str(caught.value)
    (run.checkpoints / "step_000000010" / "manifest.json").unlink()
    (run.checkpoints / "step_000000010").rmdir()
    with pytest.raises(UsageError, match="is a link to step_000000010, which does not exist"):
        resolve_run(run.checkpoints / "latest", root)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither a run directory nor a checkpoint"):
        resolve_run(tmp_path / "empty", root)


def test_newest_run_of_a_task(root: Path) -> None:
    assert newest_run(root) is None
    old, failed, other = make(root), make(root), make(root, backend="gymnasium")
    add_checkpoint(old, 1)
    ask = ("cartpole-swingup", "mujoco", "fastsac")
    assert newest_run(root, *ask) == failed
    assert newest_run(root, *ask, with_checkpoint=True) == old
    assert newest_run(root, "cartpole-swingup", "gymnasium") == other
    assert newest_run(root, "hopper") is None
    failed.run_json.write_text("{ not json")  # one damaged record must not hide the others
    assert newest_run(root, *ask) == old
