"""What a run has to do at its end may take longer than its shutdown; what hangs there may not."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from motrix_rl.checkpoint import CheckpointStore
from tests.e2e.running import Run, options
from tests.fault.test_kill import ENDLESS, WITHIN_S

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

ASYNC = "algo.trainer.async_options."
SHORT = {ASYNC + "shutdown_timeout_s": 2}


def interrupted(
    directory: Path, monkeypatch: pytest.MonkeyPatch, faults: str, **changed: Any
) -> tuple[Run, int, float]:
    """A run of the given faults, struck by Ctrl-C in the middle; its exit code, and the seconds it took to end."""
    monkeypatch.setenv("MOTRIX_RL_FAULT", faults)
    with Run(
        directory, {**ENDLESS, **SHORT, **{ASYNC + key: value for key, value in changed.items()}}
    ) as run:
        run.until_generation(20)
        run.send("parent", signal.SIGINT)
        struck = time.monotonic()
        code = run.finish(60)
        seconds = time.monotonic() - struck
        run.assert_nothing_left(WITHIN_S)
    return run, code, seconds


@pytest.mark.covers("S5")
def test_a_long_save_at_the_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, code, seconds = interrupted(tmp_path / "run", monkeypatch, "slow:learner-0:saving:1:12")
    assert code == 0, run.output
    assert 12 <= seconds < 12 + WITHIN_S
    newest = CheckpointStore(run.directory / "checkpoints").newest_valid(lambda line: pytest.fail(line))
    assert newest is not None
    assert newest.step == run.record()["generation"]
    assert run.output.count("waiting for learner-0 (saving); Ctrl-C ends it") == 1
    assert "not gone" not in run.output


@pytest.mark.covers("S2", "S5")
def test_a_save_that_hangs_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = "slow:learner-0:saving:1:60"
    run, code, seconds = interrupted(tmp_path / "run", monkeypatch, hang, heartbeat_timeout_s=4)
    assert code == 1, run.output
    assert seconds < 4 + 2 + 1 + WITHIN_S
    assert "learner-0 did not end within shutdown_timeout_s=2 s" in run.output


@pytest.mark.covers("S2", "S5")
def test_a_save_that_was_stopped_is_woken_at_the_limit_and_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, code, seconds = interrupted(tmp_path / "run", monkeypatch, "stop:learner-0:saving")
    assert code == 0, run.output
    assert 2 <= seconds < 2 + WITHIN_S
    assert "not gone after 2 s, ending: learner-0" in run.output


@pytest.mark.covers("S3", "D12")
def test_a_save_that_lost_a_rank_is_in_vain_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = "slow:learner-0:saving:1:60;kill:learner-1:saving:1"
    two = {"num_collectors": 2, "num_learners": 2}
    run, code, seconds = interrupted(tmp_path / "run", monkeypatch, faults, **two)
    assert code == 1, run.output
    assert seconds < 2 + 2 + WITHIN_S
    assert "learner-1 killed by SIGKILL" in run.output


@pytest.mark.covers("S2", "S5")
@pytest.mark.parametrize("patient", [True, False])
def test_a_long_last_evaluation_belongs_to_the_run(patient: bool, tmp_path: Path) -> None:
    """Twenty steps of 0.4 s; a Ctrl-C meanwhile gives it up, and the run has finished all the same."""
    settings = options(
        algo__trainer__num_learning_iterations=40,
        async__shutdown_timeout_s=2,
        env__step_s=0.4,
        eval__interval=40,
    )
    with Run(tmp_path / "run", settings) as run:
        run.until(lambda: "waiting for evaluator (evaluating)" in run.output, 90, "the end is waited for")
        struck = time.monotonic()
        if not patient:
            run.send("parent", signal.SIGINT)
        assert run.finish(60) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        evaluated = [record for record in run.metrics() if record["kind"] == "eval"]
        assert len(evaluated) == int(patient)
        assert run.record()["outcome"] == "finished"
        assert patient or time.monotonic() - struck < 2 + 1 + WITHIN_S
