"""Many collectors, many learners: every legal pairing does what strict owes, and no illegal one starts anything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.grid import PAIRINGS, run_pairing
from tests.e2e.running import Run, options


@pytest.mark.covers("D1", "D5", "R8")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("collectors", "learners"), PAIRINGS)
def test_every_legal_pairing_does_exactly_what_strict_owes(
    collectors: int, learners: int, tmp_path: Path
) -> None:
    found = run_pairing(tmp_path / "run", collectors, learners, 60)
    assert found.exit_code == 0, found.output
    assert found.generation == 60
    assert found.updates == found.due == 2 * 50
    assert found.replicas_equal


@pytest.mark.covers("T3", "T5", "U1")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"async__num_collectors": 3}, "num_collectors"),
        ({"async__num_collectors": 3, "num_envs": 9, "async__num_learners": 2}, "num_learners"),
        ({"async__num_collectors": 4, "async__num_learners": 4, "algo__agent__batch_size": 30}, "batch_size"),
        ({"async__learner_devices": "cuda:77"}, "cuda:77"),
        ({"async__transition_ipc": "on", "async__learner_devices": "cpu"}, "transition_ipc=on"),
        ({"async__weight_ipc": "on", "async__learner_devices": "cpu"}, "weight_ipc=on"),
    ],
)
def test_an_illegal_request_starts_no_process_and_makes_no_run(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with Run(tmp_path / "run", options(**changed)) as run:
        deadline = time.monotonic() + 60
        seen: set[int] = set()
        while run.process.poll() is None:
            seen |= set(run.members())
            assert time.monotonic() < deadline
        assert run.process.returncode == 2, run.output
        assert seen <= {run.process.pid}
        assert told in run.output
        assert "Traceback" not in run.output
        assert not run.directory.exists()
