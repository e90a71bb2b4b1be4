"""C2 and C3 with real kills and a real full disk."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from motrix_rl.checkpoint import BestStore, CheckpointSaveError, CheckpointStore
from tests.checkpoint.procs_checkpoint import save, state


class Nursery:
    """The process that forks savers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.checkpoint.procs_checkpoint"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.line() == "ready"

    def line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def begin(self, command: str) -> int:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        # A saver may be quicker with its first word than the nursery with its pid.
        while not (line := self.line()).startswith("pid"):
            self.early = line
        return int(line.split()[1])

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def check(directory: Path, at_least: int) -> int:
    """The newest checkpoint loads and is not older than what was acknowledged; none is corrupt."""
    skipped: list[str] = []
    store = CheckpointStore(directory)
    ref = store.newest_valid(skipped.append)
    assert skipped == []
    assert ref is not None and ref.metadata["number"] >= at_least
    for rank in range(2):
        loaded = store.load_file(ref, f"rank{rank}.pt")
        assert loaded["number"] == ref.metadata["number"]
        assert (loaded["weights"] == loaded["number"]).all()
    return int(ref.metadata["number"])


@pytest.mark.fault
@pytest.mark.timeout(180)
@pytest.mark.covers("C2")
def test_killed_at_random_moments(nursery: Nursery, tmp_path: Path) -> None:
    seed = 20261129
    print(f"seed {seed}")
    rng = random.Random(seed)
    acknowledged = 0
    for _ in range(80):
        pid = nursery.begin(f"loop {tmp_path} {acknowledged + 1}")
        line = getattr(nursery, "early", "") or nursery.line()
        nursery.early = ""
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        while not line.startswith("end"):
            acknowledged = int(line)
            line = nursery.line()
        assert line == "end -9"
        acknowledged = check(tmp_path, acknowledged)
    leftovers = [name for name in os.listdir(tmp_path) if name.startswith(".stage")]
    save(CheckpointStore(tmp_path, 2), acknowledged + 1, acknowledged + 1)
    names = sorted(name for name in os.listdir(tmp_path) if not name.startswith("step"))
    assert names == ["latest"], (leftovers, names)
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.fault
@pytest.mark.timeout(180)
@pytest.mark.covers("C2")
@pytest.mark.parametrize("step", [5, 6])
def test_killed_before_every_request_to_the_system(nursery: Nursery, tmp_path: Path, step: int) -> None:
    """Step 6 is new, step 5 replaces the only checkpoint there is."""
    save(CheckpointStore(tmp_path, 1), 5, 0)
    moments, number, code = 0, 1, -1
    while code != 0:
        moments += 1
        nursery.begin(f"upto {tmp_path} {step} {number} {moments}")
        code = int(nursery.line().split()[1])
        assert code in (9, 0)
        number = 1 + check(tmp_path, number if code == 0 else number - 1)
    assert moments > 15
    assert sorted(os.listdir(tmp_path)) == ["latest", f"step_{step:09d}"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system; the limit on file size is tested without")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", mounted], check=False)
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


@pytest.mark.fault
@pytest.mark.covers("C3")
def test_disk_full(small_disk: Path) -> None:
    store = CheckpointStore(small_disk / "checkpoints", keep_last=3)
    save(store, 1, 1)
    store.keep_last = 100
    with pytest.raises(CheckpointSaveError, match="the disk is full"):  # noqa: PT012 - one of them must
        for step in range(2, 40):
            save(store, step, step)
    newest = check(store.directory, step - 1)
    assert newest == step - 1
    assert not [name for name in os.listdir(store.directory) if name.startswith(".")]
    store.keep_last = 3
    (store.directory / "step_000000002" / "rank0.pt").unlink()  # a person makes room
    (store.directory / "step_000000003" / "rank0.pt").unlink()
    save(store, 99, 99)
    assert check(store.directory, 99) == 99
    best = BestStore(small_disk / "best")
    best.save(1, state(1), {"return_mean": 1.0})
    (small_disk / "filler").write_bytes(
        b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize)
    )
    with pytest.raises(CheckpointSaveError):
        best.save(2, state(2), {"return_mean": 2.0})
    ref = best.open()
    assert ref is not None and ref.step == 1


@pytest.mark.fault
@pytest.mark.covers("C3")
def test_disk_read_only(small_disk: Path) -> None:
    store = CheckpointStore(small_disk / "checkpoints")
    save(store, 1, 1)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CheckpointSaveError, match="Read-only file system"):
        store.stage(2)
    assert check(store.directory, 1) == 1


@pytest.mark.covers("C3")
def test_file_too_large(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    staging = store.stage(2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(CheckpointSaveError, match="File too large"):
            store.save_file(staging, "rank0.pt", state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(tmp_path)) == ["latest", "step_000000001"]
    assert check(tmp_path, 1) == 1


@pytest.mark.covers("C3")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_every_request_that_may_fail(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever fsync or rename fails, the save is reported, the older checkpoint loads and nothing stays."""
    store = CheckpointStore(tmp_path, keep_last=1)
    save(store, 1, 1)
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "mkdir")}
    calls = 0
    fail_at = 0
    number = 1

    def failing(name: str):  # type: ignore[no-untyped-def]
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(code, os.strerror(code))
            return real[name](*args, **kwargs)

        return call

    for name in real:
        monkeypatch.setattr(os, name, failing(name))
    for fail_at in range(1, 60):
        calls = 0
        try:
            save(store, 1, number + 1)
        except CheckpointSaveError:
            # It may have been published before its directory could be made durable.
            number = check(tmp_path, number)
        else:
            number = check(tmp_path, number + 1)
            if calls < fail_at:
                break
    else:
        raise AssertionError("never went through")
    assert fail_at > 8
    save(store, 1, number + 1)
    assert sorted(os.listdir(tmp_path)) == ["latest", "step_000000001"]
