"""The lock of a run directory: one process at a time, and nobody once that one is gone, however it went."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from motrix_rl.errors import UsageError
from motrix_rl.runs import RunDirectory

pytestmark = pytest.mark.timeout(60)

#: Claims a directory, starts a child that outlives it as a worker may, and says the child's process id.
HOLDER = """
import multiprocessing, sys, time
from motrix_rl.runs import RunDirectory
if __name__ == "__main__":
    run = RunDirectory(sys.argv[1])
    run.claim()
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_it_is_held_by_one_process_and_free_as_soon_as_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(script), str(tmp_path)]
    run = RunDirectory(tmp_path)
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)})
    try:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        with pytest.raises(
            UsageError, match=rf"is still running \(process {holder.pid} on \S+\); wait for its"
        ):
            run.claim()
    finally:
        holder.kill()
        holder.wait()
    try:
        assert Path(f"/proc/{child}").exists()
        run.claim()
    finally:
        os.kill(child, 9)
    run.release()


def test_it_goes_with_a_deleted_directory_and_is_taken_again(tmp_path: Path) -> None:
    run, other = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.claim()
    run.claim()
    shutil.rmtree(run.path)
    run.path.mkdir()
    run.claim()
    with pytest.raises(UsageError, match="is still running"):
        other.claim()
    run.release(remove=True)
    assert os.listdir(run.path) == []
    other.claim()


def test_where_files_cannot_be_locked_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    runs = [RunDirectory(tmp_path) for _ in range(2)]
    for run in runs:
        run.claim()
    for run in runs:
        run.release()
    RunDirectory(tmp_path / "not there").claim()  # whoever writes the record there says what is wrong
