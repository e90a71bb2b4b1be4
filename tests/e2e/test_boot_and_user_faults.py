"""How a run starts, how it says that it could not, and what an environment of the user's may do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.running import Run, options, strict_updates

STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) (INFO|WARN\w*|ERROR) +"


def stamped(log: str, text: str) -> tuple[datetime, str]:
    """Time and level of the log line that ends with ``text``."""
    match = re.search(rf"^{STAMP}\S+ \| .*{re.escape(text)}", log, re.MULTILINE)
    assert match is not None, f"{text!r} is not in\n{log}"
    return datetime.fromisoformat(match[1]), match[2]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run whose collector-1 is slow to build, prints by all ways, and gives NaN now and then."""
    settings = options(
        async__num_collectors=2,
        env__victim="collector-1",
        env__build_s=3.0,
        env__at_step="print",
        env__step=15,
        env__nan_every=7,
    )
    with Run(tmp_path_factory.mktemp("odd") / "run", settings) as run:
        assert run.finish() == 0, run.output
        assert run.record()["updates"] == strict_updates(60, settings)
        yield run


@pytest.mark.covers("H1")
def test_nobody_steps_before_everybody_is_ready(odd: Run) -> None:
    started = [stamped(odd.log(f"collector-{i}"), "collecting environments")[0] for i in range(2)]
    born = stamped(odd.log("collector-1"), "process ")[0]
    assert (min(started) - born).total_seconds() >= 3.0
    assert abs((started[0] - started[1]).total_seconds()) < 2.0, "one began before the other was ready"
    first = next(r for r in odd.metrics() if r["kind"] == "train")
    assert first["generation"] >= 20


@pytest.mark.covers("U3")
def test_native_output_is_in_the_log_with_time_and_level(odd: Run) -> None:
    log = odd.log("collector-1")
    assert stamped(log, "written to descriptor 1")[1] == "INFO"
    assert stamped(log, "written by the C library")[1].startswith("WARN")
    assert stamped(log, "printed by python")[1] == "INFO"
    assert "written" not in odd.output


@pytest.mark.covers("A8")
def test_a_world_that_gives_nan_is_cut_counted_and_named_and_the_run_goes_on(odd: Run) -> None:
    last = [r for r in odd.metrics() if r["kind"] == "train"][-1]
    assert last["nonfinite"] == last["episodes_aborted"] == 60 // 7
    assert last["losses"]["nonfinite_skips"] == 0
    # World 0 of the second collector is world 4 of the run.
    assert stamped(odd.log("collector-1"), "environment 4 diverged")[1].startswith("WARN")


@pytest.mark.covers("H2")
@pytest.mark.parametrize(
    ("victim", "fault", "told"),
    [
        ("collector-0", "raise", "RuntimeError: the toy is broken"),
        ("collector-0", "exit", "SystemExit: 3"),
        ("collector-0", "leave", "exited with code 0"),
        ("collector-0", "kill", "killed by SIGKILL"),
    ],
)
def test_a_worker_that_fails_at_boot_ends_it_at_once(
    victim: str, fault: str, told: str, tmp_path: Path
) -> None:
    settings = options(env__victim=victim, env__at_build=fault)
    with Run(tmp_path / "run", settings) as run:
        run.pid(victim)
        assert run.finish() == 1
        run.assert_nothing_left()
        assert f"run failed: {victim} failed while it was starting: {told}" in run.output
        assert f"logs/{victim}.log" in run.output
        assert f"async_errors/{victim}_error.log" in run.output
        assert not re.search(r"^Traceback", run.output, re.MULTILINE), "the parent's own traceback"
        error = run.error(victim)
        assert told in error
        if fault == "raise":
            assert "in misbehave" in error
        record = run.record()
        assert record["outcome"] == "failed"
        assert victim in record["reason"]


@pytest.mark.covers("H2")
def test_an_evaluator_that_never_starts_costs_the_evaluations_and_nothing_else(tmp_path: Path) -> None:
    settings = options(
        env__victim="evaluator",
        env__at_build="raise",
        env__step_s=0.05,
        algo__trainer__num_learning_iterations=600,
        eval__interval=20,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(120) == 0, run.output
        run.assert_nothing_left()
        assert run.output.count("RuntimeError: the toy is broken; started again") == 3
        assert "RuntimeError: the toy is broken; training goes on without evaluations" in run.output
        assert "in misbehave" in run.error("evaluator")
        assert run.record()["outcome"] == "finished"
        assert not [record for record in run.metrics() if record["kind"] == "eval"]


def test_a_finished_run_waits_for_an_evaluator_that_is_still_starting(tmp_path: Path) -> None:
    settings = options(
        env__victim="evaluator", env__build_s=8.0, async__shutdown_timeout_s=1, eval__interval=60
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 0, run.output
        assert re.search(
            r"waiting for evaluator \((starting|importing|building)\); Ctrl-C ends it", run.output
        )
        assert [r["eval"]["generation"] for r in run.metrics() if r["kind"] == "eval"] == [60]


@pytest.mark.covers("H3")
def test_the_boot_limit_is_the_configured_one(tmp_path: Path) -> None:
    settings = options(env__victim="collector-0", env__at_build="hang", async__boot_timeout_s=20)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 1
        ended_s = run.assert_nothing_left()
        assert "boot took longer than boot_timeout_s=20 s; not ready: collector-0" in run.output
        seconds = run.record()["seconds"]
        assert 20 <= seconds < 30, f"{seconds} s, and {ended_s} s more"
        assert "misbehave" in run.log("collector-0"), "its stacks are not in its log"
        assert "boot_timeout_s=20" in run.error("collector-0")


@pytest.mark.covers("S7")
def test_an_environment_that_raises_reaches_the_user_with_its_index_and_its_own_traceback(
    tmp_path: Path,
) -> None:
    settings = options(num_envs=16, async__num_collectors=2, async__max_collector_restarts=0)
    settings["task"] = "tests.e2e.tasks_e2e:Brittle-v0/gymnasium.fastsac"
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 1
        run.assert_nothing_left()
        # The fifth world of the second collector is world 12 of the run.
        assert "run failed: collector-1" in run.output
        assert "environment 12: ArithmeticError: a joint snapped" in run.output
        error = run.error("collector-1")
        assert "in _snap" in error
        assert 'raise ArithmeticError("a joint snapped")' in error
