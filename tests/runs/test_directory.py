from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.runs import RunDirectory, safe_name
from motrix_rl.runs.provenance import git_state, versions


def create(root: Path, run_dir: Path | None = None) -> RunDirectory:
    return RunDirectory.create(root, "gymnasium:Pendulum-v1", "gymnasium", "fastsac", run_dir)


def test_a_new_run_has_its_place_and_folders(tmp_path: Path) -> None:
    runs = {create(tmp_path).path for _ in range(20)}
    assert len(runs) == 20
    for path in runs:
        assert path.parent == tmp_path / "gymnasium_Pendulum-v1" / "gymnasium.fastsac"
        assert sorted(os.listdir(path)) == [".lock", "async_errors", "checkpoints", "logs", "run.json"]
    run = RunDirectory.open(path)
    assert run.log_path("collector-0") == run.logs / "collector-0.log"
    assert os.fspath(run) == str(path) and run == RunDirectory(path)
    assert run.record.read()["task"] == "gymnasium:Pendulum-v1"


@pytest.mark.parametrize(
    ("name", "safe"),
    [("cartpole-swingup", "cartpole-swingup"), ("gymnasium:Ant-v5", "gymnasium_Ant-v5"),
     ("a.b:ns/X-v0", "a.b_ns_X-v0"),
     ("../..", "_.."), ("..", "_"), ("", "_"), ("ü", "_")],
)  # fmt: skip
def test_names_stay_one_component(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    assert "/" not in safe_name(name) and safe_name(name) not in ("", ".", "..")


def test_a_chosen_directory(tmp_path: Path) -> None:
    chosen = tmp_path / "not" / "yet" / "there"
    run = create(tmp_path, chosen)
    assert run.path == chosen
    with pytest.raises(UsageError, match=rf"{chosen} is still running \(process {os.getpid()} on "):
        create(tmp_path, chosen)
    run.release()
    with pytest.raises(UsageError, match=f"already holds a run .*resume={chosen}, or name another run_dir"):
        create(tmp_path, chosen)
    with_log = tmp_path / "with-log"
    with_log.mkdir()
    (with_log / "slurm-17.out").touch()
    assert create(tmp_path, with_log).holds_run()


def test_places_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below", Path("/proc/none/x")):
        with pytest.raises(UsageError) as caught:
            create(tmp_path, place)
        assert str(place) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be made"):
        create(file)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "ro"
    place.mkdir()
    if os.geteuid() == 0:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", place], check=False)
        if done.returncode != 0:
            pytest.skip("mounting is not allowed here")
        yield place
        subprocess.run(["umount", place], check=True)
    else:
        place.chmod(0o500)
        yield place
        place.chmod(0o700)


def test_a_read_only_place(read_only: Path, tmp_path: Path) -> None:
    for root, chosen in ((read_only, None), (tmp_path, read_only), (tmp_path, read_only / "x")):
        with pytest.raises(UsageError, match=r"run_dir=\.\.\.") as caught:
            create(root, chosen)
        assert "\n" not in str(caught.value)


def test_open(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run directory"):
        RunDirectory.open(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no run"):
        RunDirectory.open(tmp_path)


@pytest.mark.covers("U1")
@pytest.mark.parametrize("below", [".", "below/that"])
def test_a_record_below_a_file(below: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("{}")
    with pytest.raises(UsageError) as caught:
        RunDirectory(file / below).record.read()
    assert str(caught.value) == f"{file} is a file, not a run directory"


def test_record_of_a_life_and_the_next(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.record.begin(topology={"learners": [0]}, extra={"note": float("nan"), "path": tmp_path})
    first = json.loads(run.run_json.read_text())
    assert first["outcome"] == "running" and first["pid"] == os.getpid() and run.record.is_running()
    assert first["versions"]["torch"] and first["versions"]["motrix_rl"] and first["machine"]["cpus"]
    assert first["topology"] == {"learners": [0]} and first["note"] is None and first["path"] == str(tmp_path)
    run.record.finish("interrupted", "Ctrl-C", updates=7)
    assert not run.record.is_running()
    run.record.begin()
    second = json.loads(run.run_json.read_text())
    assert second["outcome"] == "running" and second["reason"] is None and second["ended_at"] is None
    assert [life["outcome"] for life in second["history"]] == ["interrupted"]
    assert second["history"][0]["started_at"] == first["started_at"] and second["task"] == first["task"]
    assert sorted(os.listdir(run.path)) == [".lock", "async_errors", "checkpoints", "logs", "run.json"]


def test_a_killed_run_is_not_running(tmp_path: Path) -> None:
    run = create(tmp_path)
    code = "import os; from motrix_rl.runs import RunDirectory\n"
    code += f"RunDirectory({str(run)!r}).record.begin(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert run.record.read()["outcome"] == "running" and not run.record.is_running()
    # The number of a process is given again; its start time is not.
    reused = run.record.read()["process"] | {"pid": os.getpid()}
    run.record.update({"process": reused})
    assert not run.record.is_running()
    run.record.update({"process": reused | {"host": "another-machine"}})
    assert run.record.is_running()


def test_a_damaged_or_unwritable_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path)
    before = run.run_json.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MotrixError, match="cannot be written: No space left"):
        run.record.update({"x": 1})
    monkeypatch.undo()
    assert run.run_json.read_bytes() == before and len(os.listdir(run.path)) == 5
    run.run_json.write_text("{")
    with pytest.raises(MotrixError, match="cannot be read as a run record"):
        run.record.read()


def test_errors_are_written_whole(tmp_path: Path) -> None:
    run = create(tmp_path)
    path = run.write_error("collector-0", "Traceback\n  \udcff\nValueError: x\n")
    run.write_error("collector-0", "again")
    text = path.read_text()
    assert path == run.error_path("collector-0") and "ValueError: x\n" in text and text.count("====") == 4


def test_git_state_is_of_this_source_only(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True)

    assert git_state(tmp_path) is None
    git("init", "-q")
    assert git_state(tmp_path) == {"commit": None, "branch": None, "dirty": False, "changed_files": []}
    (tmp_path / "a b").write_text("1")
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    state = git_state(tmp_path)
    assert state is not None and len(state["commit"]) == 40 and not state["dirty"]
    (tmp_path / "a b").write_text("2")
    assert git_state(tmp_path)["dirty"]  # type: ignore[index]
    (tmp_path / "sub").mkdir()
    assert git_state(tmp_path / "sub") is None
    assert set(versions()) >= {"python", "torch", "mujoco", "motrix_rl"}


@pytest.mark.covers("C3")
@pytest.mark.parametrize("named", [False, True])
def test_a_disk_that_takes_no_file_is_left_as_it_was(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-made directory would be taken for a run at the next try."""

    def refuse(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("motrix_rl.runs.atomic.write_durably", refuse)
    mine, empty = tmp_path / "mine", tmp_path / "empty"
    mine.mkdir()
    empty.mkdir()
    (mine / "slurm-17.out").touch()
    for chosen in (mine, empty, tmp_path / "new") if named else (None,):
        with pytest.raises(MotrixError, match=r"run\.json cannot be written: No space left"):
            create(tmp_path / "runs", chosen)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine / "slurm-17.out"]
    assert not list(tmp_path.rglob("checkpoints"))
    assert mine.exists() and empty.exists() and not (tmp_path / "new").exists()
