"""kill -9 of every kind of process, at boot and in training: who did it is said, and nothing is left."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Run, options, strict_updates

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

#: Runs until it is ended; small intervals, so that a random moment also falls into saves and evaluations.
ENDLESS: dict[str, Any] = options(
    algo__trainer__num_learning_iterations=1_000_000,
    checkpoint__interval=50,
    checkpoint__save_replay=True,
    eval__interval=40,
    env__step_s=0.002,
)
RESTARTS = "algo.trainer.async_options.max_collector_restarts"
WITHIN_S = 10.0


def random_moment(name: str, longest_s: float) -> None:
    """Waits; the seed is the test's own, so that a failure can be repeated."""
    time.sleep(random.Random(name).uniform(0.0, longest_s))


def strike(run: Run, victim: str, when: str, name: str, signum: int = signal.SIGKILL) -> float:
    """Signals the victim at a random moment of its boot or of training; returns that moment."""
    if when == "boot":
        run.pid("collector-0" if victim == "parent" else victim)
        random_moment(name, 1.5)
    else:
        run.until_generation(20)
        random_moment(name, 2.0)
    run.send(victim, signum)
    return time.monotonic()


def assert_told(run: Run, victim: str, cause: str) -> None:
    """The last lines name the culprit, its log and its error file, which holds the cause and its last lines."""
    tail = run.output[run.output.index("run failed:") :]
    assert victim in tail.splitlines()[0]
    assert cause in tail.splitlines()[0]
    assert f"logs/{victim}.log" in tail
    assert f"async_errors/{victim}_error.log" in tail
    assert cause in run.error(victim)
    assert "last lines of its log" in run.error(victim)
    assert "Traceback" not in tail
    record = run.record()
    assert record["outcome"] == "failed"
    assert victim in record["reason"]


@pytest.mark.covers("S3", "H2", "R5")
@pytest.mark.parametrize("victim", ["collector-0", "learner-0"])
@pytest.mark.parametrize("when", ["boot", "training"])
def test_a_killed_worker_ends_the_run(victim: str, when: str, tmp_path: Path) -> None:
    with Run(tmp_path / "run", {**ENDLESS, RESTARTS: 0}) as run:
        struck = strike(run, victim, when, f"{victim} {when}")
        assert run.finish(60) == 1
        run.assert_nothing_left(WITHIN_S)
        assert time.monotonic() - struck < WITHIN_S
        assert_told(run, victim, "killed by SIGKILL")
        if when == "training" and victim == "collector-0":
            record = run.record()  # the learner saved what it had, and owed nothing
            assert record["updates"] == strict_updates(record["generation"], ENDLESS)
            assert (run.directory / "checkpoints" / f"step_{record['generation']:09d}").is_dir()


@pytest.mark.covers("S4", "R5")
@pytest.mark.parametrize("when", ["boot", "training"])
def test_a_killed_parent_leaves_nothing(when: str, tmp_path: Path) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        struck = strike(run, "parent", when, f"parent {when}")
        assert run.finish(10) == -signal.SIGKILL
        run.assert_nothing_left(WITHIN_S)
        assert time.monotonic() - struck < WITHIN_S


@pytest.mark.covers("S3", "R5", "S5")
def test_a_killed_evaluator_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        run.until(lambda: (run.directory / "best" / "best.json").exists(), 60, "there is a best policy")
        strike(run, "evaluator", "training", "evaluator")
        run.pid("evaluator", life=1)
        assert "evaluator killed by SIGKILL; started again" in run.output
        before = len([r for r in run.metrics() if r["kind"] == "eval"])
        run.until(
            lambda: len([r for r in run.metrics() if r["kind"] == "eval"]) > before, 60, "it evaluates again"
        )
        run.send("parent", signal.SIGINT)
        assert run.finish(30) == 0
        run.assert_nothing_left(WITHIN_S)
        returns = [r["eval"] for r in run.metrics() if r["kind"] == "eval"]
        kept = run.record()["best_eval"]
        assert kept == max(r["return_mean"] for r in returns)
        # The successor knew what its predecessor had kept.
        for index, result in enumerate(returns):
            earlier = [r["return_mean"] for r in returns[:index]]
            assert result["best"] == (not earlier or result["return_mean"] > max(earlier))


@pytest.mark.covers("S3", "H2")
def test_an_evaluator_killed_at_boot_is_started_again_while_the_run_goes_on(tmp_path: Path) -> None:
    with Run(tmp_path / "run", ENDLESS) as run:
        strike(run, "evaluator", "boot", "evaluator boot")
        run.pid("evaluator", life=1)
        assert "evaluator killed by SIGKILL; started again" in run.output
        run.until(lambda: [r for r in run.metrics() if r["kind"] == "eval"], 60, "the successor evaluates")
        run.send("parent", signal.SIGINT)
        assert run.finish(30) == 0
        run.assert_nothing_left(WITHIN_S)


@pytest.mark.covers("S1", "D1", "E3", "R2")
def test_killed_collectors_are_started_again_and_updates_stay_exact(tmp_path: Path) -> None:
    total = 1500
    settings = options(
        algo__trainer__num_learning_iterations=total,
        async__num_collectors=2,
        async__max_collector_restarts=3,
        env__step_s=0.002,
        eval__interval=400,
    )
    with Run(tmp_path / "run", settings) as run:
        run.until_generation(20)
        for life, victim in enumerate(["collector-0", "collector-1", "collector-0"]):
            random_moment(f"restart {life}", 0.5)
            lives = 1 + life // 2
            pid = run.pid(victim, life=lives - 1)
            os.kill(pid, signal.SIGKILL)
            run.pid(victim, life=lives)
            run.until(
                lambda log=victim, n=lives: run.log(log).count("collecting environments") > n,
                60,
                "it collects",
            )
        assert run.finish(120) == 0, run.output
        run.assert_nothing_left(WITHIN_S)
        record = run.record()
        assert record["generation"] == total
        assert record["updates"] == strict_updates(total, settings)
        assert run.output.count("killed by SIGKILL; starting it again") == 3
        assert "collecting environments" in run.output, "the last lines of its log are not shown"
        last = [r for r in run.metrics() if r["kind"] == "train"][-1]
        # Three shards of four worlds lost their running episodes; a moment between two episodes loses none.
        assert 0 < last["episodes_aborted"] <= 12
        assert last["length_mean"] == 20


@pytest.mark.covers("S1")
def test_a_fault_that_repeats_ends_the_run_after_the_restarts_that_were_allowed(tmp_path: Path) -> None:
    settings = options(
        algo__trainer__num_learning_iterations=10_000,
        async__max_collector_restarts=2,
        env__victim="collector",
        env__at_step="raise",
        env__step=30,
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(120) == 1
        run.assert_nothing_left(WITHIN_S)
        assert run.output.count("starting it again") == 2
        assert "run failed: collector-0 RuntimeError: the toy is broken" in run.output
        assert "in misbehave" in run.error("collector-0")
        assert run.record()["generation"] == 87, "29 generations a life"
