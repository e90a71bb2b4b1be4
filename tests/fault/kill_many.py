"""Many kills, for hours if need be: `python -m tests.fault.kill_many --collectors 100 --trees 50`.

1. One training on two collectors and two learners, in which random collectors are killed with SIGKILL. It must
   complete, with exactly the updates that strict mode owes, equal replicas, and every generation once.
2. A training whose whole tree is killed with SIGKILL at random moments, saves among them; each time
   `resume=auto` goes on from a checkpoint that is not older than the interval.

Prints one line for each part and ends with 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from motrix_rl.checkpoint import CheckpointStore
from tests.e2e.running import Run, options, strict_updates

INTERVAL = 25
RESUMED = re.compile(r"resumed from \S+: generation (\d+),")


def settings_for(total: int, **changed: Any) -> dict[str, Any]:
    """Two collectors, two learners, steps of 5 ms."""
    return options(
        algo__trainer__num_learning_iterations=total,
        async__num_collectors=2,
        async__num_learners=2,
        checkpoint__interval=INTERVAL,
        env__step_s=0.005,
        **changed,
    )


def kill_collectors(folder: Path, kills: int, draw: random.Random) -> str:
    """Part 1; returns its line.

    Raises:
        AssertionError: something did not hold.
    """
    total = 1_000_000
    settings = settings_for(total, async__max_collector_restarts=kills, async__shutdown_timeout_s=30)
    began = time.monotonic()
    lives = dict.fromkeys(("collector-0", "collector-1"), 0)
    downtime: list[float] = []
    with Run(folder / "collectors", settings) as run:
        run.until_generation(20, 120)
        for kill in range(kills):
            victim = draw.choice(list(lives))
            time.sleep(draw.uniform(0.0, 0.5))
            pid = run.pid(victim, life=lives[victim])
            os.kill(pid, signal.SIGKILL)
            struck = time.monotonic()
            lives[victim] += 1
            wanted = lives[victim] + 1
            run.until(
                lambda log=victim, n=wanted: run.log(log).count("collecting environments") >= n,
                120,
                f"{victim} collects again after kill {kill + 1}",
            )
            downtime.append(time.monotonic() - struck)
            progress(kill + 1, kills, began)
        run.send("parent", signal.SIGINT)
        assert run.finish(60) == 0, run.output[-2000:]
        run.assert_nothing_left()
        record = run.record()
        owed = strict_updates(record["generation"], settings)
        assert record["updates"] == owed, f"{record['updates']} updates, {owed} are owed"
        generations = [r["generation"] for r in run.metrics() if r["kind"] == "train"]
        assert generations == sorted(generations)
        # Saves compare the replicas to the bit, and the last one was taken at the very end.
        newest = CheckpointStore(run.directory / "checkpoints").newest_valid(lambda line: None)
        assert newest is not None
        assert newest.step == record["generation"]
    return (
        f"collectors: {kills} kills in {time.monotonic() - began:.0f} s, generation {record['generation']}, "
        f"{owed} updates of {owed} owed, back after {sum(downtime) / len(downtime):.1f} s "
        f"(longest {max(downtime):.1f} s)"
    )


def kill_trees(folder: Path, kills: int, draw: random.Random) -> str:
    """Part 2; returns its line.

    Raises:
        AssertionError: something did not hold.
    """
    directory = folder / "trees"
    settings = settings_for(1_000_000, checkpoint__save_replay=True)
    began = time.monotonic()
    reached, saving, lost = 0, 0, []
    for kill in range(kills + 1):
        with Run(directory, {**settings, "resume": "auto"}) as run:
            run.until(
                lambda n=kill: run.log("learner-0").count("incarnation 0") > n, 120, "the learner is there"
            )
            store = CheckpointStore(directory / "checkpoints")
            before = store.newest_valid(lambda line: None) if kill else None
            start = 0 if before is None else before.step
            if kill:
                found = run_until_resumed(run, kill)
                assert found == start, f"resumed at {found}, the newest checkpoint is {start}"
                assert reached - found <= INTERVAL + 8, f"{reached - found} generations lost"
                lost.append(reached - found)
            run.until(lambda s=start: newest_generation(run) > s + INTERVAL, 120, "it gets on")
            if kill == kills:
                run.send("parent", signal.SIGINT)
                assert run.finish(60) == 0, run.output[-2000:]
                run.assert_nothing_left()
                break
            time.sleep(draw.uniform(0.0, 0.6))
            if draw.random() < 0.5:
                saving += wait_for_staging(directory)
            for pid in run.members():
                os.kill(pid, signal.SIGKILL)
            run.process.wait(10)
            run.assert_nothing_left()
            reached = newest_generation(run)
            progress(kill + 1, kills, began)
    return (
        f"trees: {kills} kills ({saving} of them while saving) in {time.monotonic() - began:.0f} s, each went on; "
        f"lost at most {max(lost)} recorded generations, interval {INTERVAL}"
    )


def newest_generation(run: Run) -> int:
    """The newest generation on record; a torn last line is the price of a kill."""
    path = run.directory / "metrics.jsonl"
    found = re.findall(r'"generation": ?(\d+)', path.read_text(errors="replace")) if path.exists() else []
    return int(found[-1]) if found else 0


def run_until_resumed(run: Run, kill: int) -> int:
    """Waits until the learner has said where it goes on; returns the generation."""
    run.until(
        lambda: (
            len(RESUMED.findall(run.log("learner-0"))) >= kill
            and run.log("collector-0").count("collecting environments") > kill
        ),
        120,
        "the run is resumed",
    )
    return int(RESUMED.findall(run.log("learner-0"))[-1])


def wait_for_staging(directory: Path) -> int:
    """Waits a while for a checkpoint to be written; returns 1 when that has begun."""
    checkpoints = directory / "checkpoints"
    known = set(os.listdir(checkpoints))  # what a killed writer left is swept by the next save
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        if any(name.startswith(".stage-") and name not in known for name in os.listdir(checkpoints)):
            return 1
        time.sleep(0.0005)
    return 0


def progress(done: int, total: int, began: float) -> None:
    """One line, beside the result."""
    print(f"{done} of {total} kills, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Runs the parts that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--collectors", type=int, default=0, metavar="N", help="kills of collectors")
    arguments.add_argument("--trees", type=int, default=0, metavar="M", help="kills of the whole tree")
    arguments.add_argument("--seed", type=int, default=0, help="of the moments and victims")
    given = arguments.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the run that is going on, too
    code = 0
    for kills, part in ((given.collectors, kill_collectors), (given.trees, kill_trees)):
        if not kills:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(part(Path(folder), kills, random.Random(given.seed)), flush=True)
            except AssertionError as fault:
                print(f"{part.__name__}: FAILED: {fault}", flush=True)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
