"""Whole runs with the shipped recipes, to the point where they have visibly learnt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def best_evaluation(run_dir: Path, *words: str) -> float:
    """Trains with a shipped recipe and returns the best policy's mean return."""
    command = [sys.executable, str(ROOT / "train.py"), f"run_dir={run_dir}", "logging.console=plain", *words]
    subprocess.run(command, check=True, cwd=run_dir.parent, timeout=900, stdout=subprocess.DEVNULL)
    return float(json.loads((run_dir / "run.json").read_text())["best_eval"])


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.covers("A9")
@pytest.mark.parametrize("seed", [3, 4])
def test_the_default_task_is_solved(tmp_path: Path, seed: int) -> None:
    assert best_evaluation(tmp_path / "run", f"seed={seed}") >= 750


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.covers("A9")
def test_a_gymnasium_task_is_learnt(tmp_path: Path) -> None:
    words = ["task=gymnasium:Pendulum-v1/gymnasium.fastsac", "algo.trainer.num_learning_iterations=2500"]
    assert best_evaluation(tmp_path / "run", *words) >= -250
