"""`motrix-rl logs`: one worker's lines, or all merged by time."""

from __future__ import annotations

from pathlib import Path

import pytest

from motrix_rl.cli.main import main
from motrix_rl.runs import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "hopper", "mujoco", "fastsac")
    for worker, seconds in (("collector-0", (1, 3)), ("learner-0", (2, 4))):
        lines = [f"2026-01-01T00:00:0{s}.000 INFO  {worker} | line {s}" for s in seconds]
        run.log_path(worker).write_text("\n".join(lines) + "\n")
    return run


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """Numbers of the lines that `logs WORDS` prints."""
    assert main(["logs", *words]) == 0
    return [int(line.rsplit(" ", 1)[-1]) for line in capsys.readouterr().out.splitlines()]


def test_all_logs_are_merged_and_one_stands_alone(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(run.path)
    assert shown(capsys, path) == [1, 2, 3, 4]
    assert shown(capsys, path, "learner-0") == [2, 4]
    assert shown(capsys, path, "-n", "2") == [3, 4]
    assert shown(capsys, "-n", "1", path, "collector-0") == [3]
    assert shown(capsys, path, "-f") == [1, 2, 3, 4]  # nothing runs there, so following it ends


@pytest.mark.covers("U1")
def test_an_unknown_worker_gets_the_nearest(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("colector-0", "collector0"):
        assert main(["logs", str(run.path), name]) == 2
        assert "did you mean 'collector-0'?" in capsys.readouterr().err


def test_the_worker_that_the_help_names_is_one(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["logs", "--help"])
    example = capsys.readouterr().out.split("such as ")[1].split(";")[0]
    assert shown(capsys, str(run.path), example) == [1, 3]
