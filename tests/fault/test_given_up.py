"""What is started again, and what is given up: whole runs, by faults that are ordered."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.e2e.running import Run, options, strict_updates

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

TOTAL = 100


def order(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv("MOTRIX_RL_FAULT", fault)


@pytest.mark.covers("S3", "D1")
def test_a_dead_learner_is_made_good_by_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(monkeypatch, "kill:learner-0:saving:3")
    settings = options(
        algo__trainer__num_learning_iterations=TOTAL,
        async__max_learner_restarts=1,
        checkpoint__interval=20,
        checkpoint__save_replay=True,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(150) == 0, run.output
        run.assert_nothing_left()
        assert "run failed: learner-0 killed by SIGKILL" in run.output
        assert "starting again from the last checkpoint (1 of 1)" in run.output
        assert "generation 40," in run.log("learner-0")
        record = run.record()
        assert record["outcome"] == "finished"
        assert record["generation"] == TOTAL
        assert record["updates"] == strict_updates(TOTAL, settings)


@pytest.mark.covers("S3")
def test_a_fault_that_only_comes_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order(monkeypatch, "raise:learner-0*:ingesting")
    settings = options(algo__trainer__num_learning_iterations=TOTAL, async__max_learner_restarts=5)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(150) == 1
        run.assert_nothing_left()
        assert "not started again: no new generation since 0" in run.output
        assert run.output.count("run failed:") == 1


@pytest.mark.covers("S1")
def test_a_collector_that_collects_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(monkeypatch, "exit:collector-0*:stepping:1")  # that is at its first reset
    settings = options(
        algo__trainer__num_learning_iterations=TOTAL,
        async__max_collector_restarts=50,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(150) == 1
        run.assert_nothing_left()
        assert "2 times in a row before it had collected a step" in run.output


@pytest.mark.covers("D9")
def test_gradients_that_stay_nan_end_the_run_and_leave_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(monkeypatch, "nan:learner-0:updating:3+")
    settings = options(
        algo__trainer__num_learning_iterations=10_000,
        algo__trainer__max_nan_steps=20,
        async__max_learner_restarts=3,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(150) == 1
        run.assert_nothing_left()
        assert "gradient steps in a row were not finite (max_nan_steps=20)" in run.output
        assert "starting again" not in run.output
        state = torch.load(run.directory / "async_errors" / "learner-0_nonfinite.pt", weights_only=True)
        assert set(state) == {"agent"}


@pytest.mark.covers("A8")
def test_an_environment_that_stays_nan_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order(monkeypatch, "nan:collector-0:stepping:10+")
    settings = options(algo__trainer__num_learning_iterations=10_000)  # one of eight worlds
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(150) == 1
        run.assert_nothing_left()
        assert "transitions were cut because the environment gave NaN or Inf" in run.output
        assert "max_nonfinite_share=0.1" in run.output
        assert "run failed: " in run.output


@pytest.mark.covers("U1")
def test_an_order_for_nobody_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order(monkeypatch, "kill:colector-0:stepping")
    with Run(tmp_path / "run", options()) as run:
        assert run.finish(30) == 2
        assert run.output.strip().splitlines() == [
            "error: MOTRIX_RL_FAULT: this run has no worker 'colector-0'; did you mean 'collector-0'?"
        ]
        assert not run.directory.exists()
