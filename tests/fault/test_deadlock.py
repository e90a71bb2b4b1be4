"""All wait for one another: found, told with everybody's stacks, and ended; long work is not taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.running import Run, options, strict_updates

pytestmark = pytest.mark.timeout(240)

WITHIN_S = 10.0
EVERYBODY = ("learner-0", "learner-1", "collector-0", "collector-1", "evaluator")


@pytest.mark.fault
@pytest.mark.covers("S2", "D12", "S6")
@pytest.mark.parametrize("victim", ["collector-1:stepping:30", "learner-1:updating:4"])
def test_a_deadlock_ends_the_run_with_all_stacks(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The victim gives signs of life for ever, and waits for something that never comes."""
    monkeypatch.setenv("MOTRIX_RL_FAULT", f"stall:{victim}")
    settings = options(
        algo__trainer__num_learning_iterations=100_000,
        async__num_collectors=2,
        async__num_learners=2,
        async__heartbeat_timeout_s=4,
        eval__interval=20,
    )
    with Run(tmp_path / "run", settings) as run:
        run.until(lambda: "ordered fault: stall" in run.log(victim.partition(":")[0]), 90, "it stalls")
        assert 3.0 < run.until(lambda: run.process.poll() is not None, 40, "it ends") < 25.0
        assert run.finish() == 1
        run.assert_nothing_left(WITHIN_S)
        failed = next(line for line in run.output.splitlines() if line.startswith("run failed:"))
        assert "deadlock: all have waited for more than 4 s: learner-0 collective " in failed
        assert "collector-1 waiting, evaluator waiting; the stacks of all are in their logs" in failed
        for worker in EVERYBODY:
            assert "most recent call first" in run.log(worker), worker
        assert "in _stall" in run.log(victim.partition(":")[0])
        record = run.record()
        assert record["outcome"] == "failed"
        assert record["reason"].startswith("deadlock: ")
        assert "hung" not in run.output


@pytest.mark.fault
@pytest.mark.covers("S2")
def test_a_long_save_for_which_all_wait_is_no_deadlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTRIX_RL_FAULT", "slow:learner-0:saving:1:9")
    settings = options(
        async__num_collectors=2, async__num_learners=2, async__heartbeat_timeout_s=4, checkpoint__interval=20
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(120) == 0, run.output
        assert "ordered fault: slow" in run.log("learner-0")
        assert "deadlock" not in run.output
        assert "hung" not in run.output
        assert run.record()["updates"] == strict_updates(60, settings)


@pytest.mark.fault_all
@pytest.mark.covers("S1", "S2")
def test_waiting_for_a_collector_to_be_started_again_is_no_deadlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fourth start waits 4 s, longer than the limit."""
    monkeypatch.setenv("MOTRIX_RL_FAULT", "exit:collector-0*:stepping:15")
    settings = options(async__max_collector_restarts=4, async__heartbeat_timeout_s=3)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(180) == 0, run.output
        assert run.output.count("collector-0 exited with code 3; starting it again") == 4
        assert "deadlock" not in run.output
        assert run.record()["updates"] == strict_updates(60, settings)
