"""Ctrl-C, SIGTERM, SIGSTOP, and what only looks like a fault."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from motrix_rl.checkpoint import CheckpointStore
from tests.e2e.running import Run, options, strict_updates
from tests.fault.test_kill import ENDLESS, RESTARTS, WITHIN_S, random_moment

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


def assert_saved(run: Run) -> None:
    """The state at which it ended is in its newest checkpoint, and it owes nothing."""
    record = run.record()
    assert record["outcome"] == "interrupted"
    newest = CheckpointStore(run.directory / "checkpoints").newest_valid(lambda line: pytest.fail(line))
    assert newest is not None
    assert newest.step == record["generation"]
    assert newest.metadata["updates"] == record["updates"] == strict_updates(newest.step, ENDLESS)
    assert f"saved at generation {newest.step}" in run.output
    assert f"resume={run.directory}" in run.output


@pytest.mark.covers("S5", "R5", "D1")
@pytest.mark.parametrize(
    ("whom", "signum", "told"),
    [
        ("parent", signal.SIGINT, "interrupted by SIGINT"),
        ("parent", signal.SIGTERM, "interrupted by SIGTERM"),
        ("collector-0", signal.SIGTERM, "a worker received SIGTERM"),
    ],
)
def test_asked_to_stop_it_saves_and_leaves(
    whom: str, signum: signal.Signals, told: str, tmp_path: Path
) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        run.until_generation(20)
        random_moment(f"{whom} {signum}", 1.5)
        run.send(whom, signum)
        assert run.finish(30) == 0
        run.assert_nothing_left(WITHIN_S)
        assert told in run.output
        assert_saved(run)


@pytest.mark.covers("S5", "H2")
def test_ctrl_c_at_boot_ends_it(tmp_path: Path) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        run.pid("learner-0")
        run.send("parent", signal.SIGINT)
        assert run.finish(30) == 0
        run.assert_nothing_left(WITHIN_S)
        assert "interrupted by SIGINT; nothing saved" in run.output
        assert run.record()["outcome"] == "interrupted"


@pytest.mark.covers("S5", "S6")
def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        run.until_generation(20)
        run.send("learner-0", signal.SIGSTOP)  # a shutdown that would take long
        run.send("parent", signal.SIGINT)
        time.sleep(1.0)
        assert run.process.poll() is None
        struck = time.monotonic()
        run.send("parent", signal.SIGINT)
        assert run.finish(10) == 130
        assert time.monotonic() - struck < 5.0
        run.assert_nothing_left(WITHIN_S)


@pytest.mark.covers("S5", "S2")
def test_a_save_that_does_not_end_in_time_is_told(tmp_path: Path) -> None:
    settings = {**ENDLESS, "algo.trainer.async_options.shutdown_timeout_s": 3}
    with Run(tmp_path / "run", settings) as run:
        run.until_generation(20)
        learner = run.send("learner-0", signal.SIGSTOP)
        run.send("parent", signal.SIGINT)
        time.sleep(2.0)
        while run.process.poll() is None:  # whatever wakes it, it stays stopped
            try:
                os.kill(learner, signal.SIGSTOP)
            except ProcessLookupError:
                break
            time.sleep(0.0005)
        assert run.finish(20) in (0, 1)
        run.assert_nothing_left(WITHIN_S)
        record = run.record()
        if record["outcome"] == "failed":
            assert "learner-0 did not end within shutdown_timeout_s=3 s" in run.output
        else:
            assert_saved(run)


@pytest.mark.covers("S2", "S3")
@pytest.mark.parametrize("victim", ["collector-0", "learner-0"])
def test_a_stopped_worker_is_named_as_hung_with_its_stacks(victim: str, tmp_path: Path) -> None:
    settings = {**ENDLESS, "algo.trainer.async_options.heartbeat_timeout_s": 4, RESTARTS: 0}
    with Run(tmp_path / "run", settings) as run:
        run.until_generation(20)
        struck = time.monotonic()
        run.send(victim, signal.SIGSTOP)
        assert run.finish(40) == 1
        run.assert_nothing_left(WITHIN_S)
        assert 4 <= time.monotonic() - struck < 4 + WITHIN_S
        assert re.search(
            rf"{victim} is hung \(stopped.* for more than 4 s\); its stacks are in its log", run.output
        )
        assert f"run failed: {victim} hung: stopped" in run.output
        assert 'File "' in run.log(victim)
        assert "most recent call first" in run.log(victim)
        assert "hung: stopped" in run.error(victim)


@pytest.mark.covers("S2", "S1", "D1")
def test_a_hanging_environment_is_found_by_its_heartbeat_and_its_collector_started_again(
    tmp_path: Path,
) -> None:
    settings = options(
        algo__trainer__num_learning_iterations=60,
        async__heartbeat_timeout_s=4,
        async__max_collector_restarts=1,
        env__victim="collector-0",
        env__at_step="hang",
        env__step=40,  # the second life has 21 steps to go and does not get there
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(90) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        assert "collector-0 is hung (no progress in phase stepping for more than 4 s)" in run.output
        assert "in misbehave" in run.log("collector-0")
        record = run.record()
        assert record["updates"] == strict_updates(60, settings)


@pytest.mark.covers("S2")
def test_a_long_evaluation_is_no_fault(tmp_path: Path) -> None:
    """Twenty steps of 0.4 s are twice the heartbeat's limit; each step is a sign of life."""
    settings = options(
        algo__trainer__num_learning_iterations=40,
        async__heartbeat_timeout_s=4,
        async__shutdown_timeout_s=30,
        env__step_s=0.4,
        eval__interval=20,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(120) == 0, run.output
        assert "hung" not in run.output
        last = [r["eval"] for r in run.metrics() if r["kind"] == "eval"][-1]
        assert last["generation"] == 40
        assert last["seconds"] > 6


@pytest.mark.covers("S8")
@pytest.mark.parametrize("limit", [256, 60])
def test_few_open_files_work_or_are_one_line(limit: int, tmp_path: Path) -> None:
    prefix = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]
    settings = options(async__num_collectors=2, eval__interval=30)
    with Run(tmp_path / "run", settings, prefix) as run:
        code = run.finish(90)
        run.assert_nothing_left(WITHIN_S)
        assert "Traceback" not in run.output
        if limit == 256:
            assert code == 0, run.output
        else:
            assert code == 1
            assert "limit on open files is reached; raise it (`ulimit -n 4096`)" in run.output
            assert run.record()["outcome"] == "failed"
