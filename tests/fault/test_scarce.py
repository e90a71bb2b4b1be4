"""Full disks, read-only and deleted run directories, few descriptors, a small `/dev/shm`: one line, or it works."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from motrix_rl.checkpoint import CheckpointRef, CheckpointStore
from motrix_rl.runs import RunDirectory
from tests.e2e.running import Run, options, strict_updates
from tests.fault.rooms import Room

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

WITHIN_S = 10.0
#: Runs until it is ended, and saves often.
ENDLESS: dict[str, Any] = options(
    algo__trainer__num_learning_iterations=1_000_000,
    checkpoint__interval=50,
    env__step_s=0.002,
)
ANOTHER = r"choose another place with run_dir=\.\.\."
RESTARTS = "algo.trainer.async_options.max_collector_restarts"


def newest(directory: Path) -> CheckpointRef:
    """The newest checkpoint; every one must be whole."""
    found = CheckpointStore(directory / "checkpoints").newest_valid(lambda line: pytest.fail(line))
    assert found is not None
    return found


def fill(disk: Path) -> Path:
    """Takes all the room that a disk has."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def told(run: Run, text: str, timeout_s: float = 60.0, times: int = 1) -> None:
    run.until(lambda: run.output.count(text) >= times, timeout_s, f"'{text}' is told {times} times")


def assert_no_stack_trace(run: Run) -> None:
    assert "Traceback" not in run.output
    assert 'File "' not in run.output


def assert_one_line(run: Run, code: int, pattern: str) -> None:
    assert run.finish(60) == code, run.output
    run.assert_nothing_left(WITHIN_S)
    lines = run.output.strip().splitlines()
    assert len(lines) == 1, run.output
    assert re.fullmatch(pattern, lines[0]), lines[0]


def go_on(room: Room | None, directory: Path, seen: Path) -> None:
    """What was saved is whole: the run goes on from it, to its end."""
    step = newest(seen).step
    settings = {
        "resume": directory,
        "algo.trainer.num_learning_iterations": step + 30,
        "logging.console": "plain",
    }
    with Run(directory, settings, room.prefix if room else (), resumed=True) as run:
        run.directory = seen
        assert run.finish(90) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        record = run.record()
        assert record["generation"] == step + 30
        assert record["resumed_from"].endswith(f"step_{step:09d}")
        # Without a saved replay, as many generations as the warm-up had are refilled first.
        assert record["updates"] == strict_updates(step, ENDLESS) + 2 * (30 - 10)


@pytest.mark.covers("C3", "C2", "S5")
def test_a_disk_that_fills_up_costs_what_does_not_fit_and_no_more(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with Room(f"mount -t tmpfs -o size=3m none {directory}") as room:
        seen = room.inside(directory)
        with Run(directory, ENDLESS, room.prefix) as run:
            run.directory = seen
            told(run, "step_000000100")
            ballast = fill(seen)
            saved = newest(seen).step
            told(run, "the disk is full", times=2)
            told(run, "metrics are not recorded: ")
            assert run.output.count("metrics are not recorded") == 1
            assert newest(seen).step == saved
            ballast.unlink()
            saves = run.output.count("saved checkpoint")
            told(run, "saved checkpoint", times=saves + 2)
            told(run, "metrics are recorded again; ")
            assert newest(seen).step > saved
            fill(seen)
            told(run, "metrics are not recorded: ", times=2)
            run.send("parent", signal.SIGINT)
            assert run.finish(30) == 1
            run.assert_nothing_left(WITHIN_S)
            lost = r"run failed: interrupted by SIGINT, and the last state is lost: checkpoint not saved: "
            assert re.search(lost + r"\S.* in \S+checkpoints: the disk is full", run.output)
            assert f"go on with it: python train.py resume={directory}" in run.output
            assert_no_stack_trace(run)
        fill(seen)
        with Run(directory, {"resume": directory}, room.prefix, resumed=True) as run:
            assert_one_line(run, 1, r"error: \S+/run\.json cannot be written: No space left on device")
        ballast.unlink()
        go_on(room, directory, seen)


@pytest.mark.covers("C3")
@pytest.mark.parametrize(
    ("limit", "refused"),
    [("size=4k", r"(run\.json|config\.yaml) cannot be written"), ("nr_inodes=2", "cannot be made")],
)
def test_a_disk_that_is_full_at_the_start_is_one_line_and_left_as_it_was(
    limit: str, refused: str, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with (
        Room(f"mount -t tmpfs -o {limit} none {directory}") as room,
        Run(directory, ENDLESS, room.prefix) as run,
    ):
        assert_one_line(run, 1 if "run" in refused else 2, rf"error: .*{refused}: No space left on device.*")
        assert os.listdir(room.inside(directory)) == []  # else the next start would take it for a run


@pytest.mark.covers("C3")
def test_a_disk_without_room_for_logs_is_told_before_anything_runs(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with (
        Room(f"mount -t tmpfs -o nr_inodes=8 none {directory}") as room,
        Run(directory, ENDLESS, room.prefix) as run,
    ):
        assert run.finish(60) == 1
        run.assert_nothing_left(WITHIN_S)
        full = r"\S+/logs/learner-0\.log: No space left on device"
        assert re.search(rf"^run failed: the workers cannot be started: {full}$", run.output, re.MULTILINE)
        assert_no_stack_trace(run)


@pytest.mark.parametrize("place", ["disk", "disk/run"])
def test_a_read_only_disk_is_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    settings = {**ENDLESS, "run_dir": tmp_path / place}
    with (
        Room(f"mount -t tmpfs -o ro none {tmp_path / 'disk'}") as room,
        Run(tmp_path / "run", settings, room.prefix, resumed=True) as run,
    ):
        assert_one_line(run, 2, rf"error: the run directory {tmp_path / place} cannot be .*; {ANOTHER}")


@pytest.fixture
def powerless() -> list[str]:
    """Words before a command that has no power over mode bits: even root's are those of its owner."""
    words = ["unshare", "--user", "--"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
        return words
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere, and user namespaces are not allowed here")
    return []


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ({"run_dir": "mine/run"}, 0o555),
        ({"run_dir": "mine/run"}, 0o000),
        ({"run_dir": "mine"}, 0o555),
        ({"runs_root": "mine"}, 0o000),
        ({"run_dir": "before", "resume": "auto"}, 0o555),
    ],
)
def test_a_place_where_this_user_may_not_write_is_one_line(
    words: dict[str, str], mode: int, tmp_path: Path, powerless: list[str]
) -> None:
    mine, before = tmp_path / "mine", tmp_path / "before"
    mine.mkdir()
    RunDirectory.create(tmp_path, "t", "python", "fastsac", before)
    places = {key: word if key == "resume" else tmp_path / word for key, word in words.items()}
    for path in (mine, before, *before.iterdir()):
        path.chmod(mode)
    try:
        with Run(tmp_path / "run", {**ENDLESS, **places}, powerless, resumed=True) as run:
            assert_one_line(run, 2, rf"error: the run directory {tmp_path}\S* cannot be .*; {ANOTHER}")
    finally:
        for path in (mine, before, *before.iterdir()):
            path.chmod(0o755)
    assert not list(mine.iterdir())


@pytest.mark.covers("C3", "S1")
def test_a_run_goes_on_when_its_directory_becomes_read_only(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with Room(f"mount -t tmpfs -o size=8m none {directory}") as room:
        seen = room.inside(directory)
        with Run(directory, {**ENDLESS, RESTARTS: 1}, room.prefix) as run:
            run.directory = seen
            told(run, "step_000000100")
            # Nobody could make a mount read-only to which files are open; but whoever opens one looks here.
            room.do(f"mount --bind {directory} {directory}; mount -o remount,bind,ro {directory}")
            told(run, "checkpoints: Read-only file system", times=2)
            saved = newest(seen).step
            run.send("collector-0", signal.SIGKILL)
            told(run, "collector-0 killed by SIGKILL; starting it again")
            # Its successor has no log, and collects all the same.
            told(run, "checkpoints: Read-only file system", times=run.output.count("Read-only") + 3)
            run.send("parent", signal.SIGTERM)
            assert run.finish(30) == 1
            run.assert_nothing_left(WITHIN_S)
            assert (
                "run failed: interrupted by SIGTERM, and the last state is lost: checkpoint not" in run.output
            )
            assert f"{directory}/run.json cannot be written: Read-only file system" in run.output
            assert_no_stack_trace(run)
        assert newest(seen).step == saved
        room.do(f"umount {directory}")
        go_on(room, directory, seen)


@pytest.mark.covers("C3")
def test_a_run_whose_directory_is_deleted_says_so_and_goes_on_in_a_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with Run(directory, {**ENDLESS, "logging.tensorboard": True}) as run:
        told(run, "step_000000100")
        lost = run.metrics()[-1]["generation"]
        shutil.rmtree(directory, ignore_errors=True)  # whose last step fails where the run has just written
        told(run, "config.yaml and run.json of the running run in ")
        told(run, "saved checkpoint", times=run.output.count("saved checkpoint") + 2)
        run.send("parent", signal.SIGINT)
        assert run.finish(30) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        assert run.output.count("were deleted or moved") == 1
        assert "checkpoints, metrics and logs up to now may be lost" in run.output
        assert run.record()["outcome"] == "interrupted"
        assert run.record()["generation"] == newest(directory).step
        assert run.metrics()[0]["generation"] > lost
        assert "saved checkpoint" in run.log("learner-0")
        assert_no_stack_trace(run)
    go_on(None, directory, directory)


@pytest.mark.covers("S8")
@pytest.mark.parametrize(("collectors", "learners"), [(1, 1), (4, 2)])
def test_256_open_files_are_enough(collectors: int, learners: int, tmp_path: Path) -> None:
    settings = options(
        async__num_collectors=collectors,
        async__num_learners=learners,
        eval__interval=30,
        checkpoint__interval=20,
        checkpoint__save_replay=True,
    )
    with Run(tmp_path / "run", settings, ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]) as run:
        assert run.finish(120) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        assert "open files" not in run.output
        assert run.record()["updates"] == strict_updates(60, settings)


@pytest.mark.covers("S8", "T6", "R5")
def test_a_small_dev_shm_does_not_matter(tmp_path: Path) -> None:
    """Rings of more than its 64 MB, and nothing in it while they are in use or afterwards."""
    settings = options(
        num_envs=4096,
        async__num_collectors=2,
        async__ring_capacity=1000,
        algo__agent__learning_starts=8 * 4096,
        algo__agent__buffer_size=20 * 4096,
        algo__trainer__num_learning_iterations=1_000_000,
    )
    with (
        Room("mount -t tmpfs -o size=64m none /dev/shm") as room,
        Run(tmp_path / "run", settings, room.prefix) as run,
    ):
        run.until_generation(20)
        assert shared_mib(run.pid("learner-0")) > 64
        assert os.listdir(room.inside(Path("/dev/shm"))) == []
        run.send("parent", signal.SIGINT)
        assert run.finish(60) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        assert os.listdir(room.inside(Path("/dev/shm"))) == []


def shared_mib(pid: int) -> int:
    """Shared memory that a process has touched."""
    found = re.search(r"RssShmem:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10
