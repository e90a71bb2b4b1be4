"""The lines that stay on the terminal when a run has ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from motrix_rl.runs import RunDirectory
from workers.outcome import Outcome, closing_lines

SUMMARY = {"generation": 20, "updates": 40, "seconds": 3.0, "best_eval": None}


@pytest.mark.parametrize(
    ("started_as", "command"),
    [
        ("train.py", "python train.py"),
        ("../code/train.py", "python ../code/train.py"),
        ("{here}/train.py", "python train.py"),
        ("/a place/train.py", "python '/a place/train.py'"),
        ("/usr/bin/motrix-rl", "motrix-rl train"),
        ("-c", "motrix-rl train"),
    ],
)
def test_an_interrupted_run_goes_on_the_way_it_was_started(
    started_as: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [started_as.format(here=tmp_path), "num_envs=8"])
    run = RunDirectory.create(tmp_path / "runs", "hopper", "mujoco", "fastsac")
    (run.checkpoints / "step_000000020").mkdir(parents=True)
    lines = closing_lines(Outcome("interrupted", "interrupted by SIGINT"), run, SUMMARY)
    assert lines[-1] == f"  go on with it: {command} resume={run.path.relative_to(tmp_path)}"
