"""Kills each kind of process at random moments, many times: `python -m tests.fault.kill_each --kills 20`.

Each time: within 10 s nothing is left (processes, shared memory, temporary files), and, unless the parent itself
was killed, the last lines on the terminal name who died and where its log is. A command, not a timed test.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from pathlib import Path

from tests.e2e.running import Run, options

VICTIMS = ("collector-0", "learner-0", "parent")


def kill_once(folder: Path, victim: str, draw: random.Random) -> float:
    """One run, killed somewhere between its first second and its tenth; returns seconds until all was gone.

    Raises:
        AssertionError: something was left, or not said.
    """
    settings = options(
        algo__trainer__num_learning_iterations=1_000_000,
        async__max_collector_restarts=0,
        checkpoint__interval=20,
        checkpoint__save_replay=True,
        eval__interval=20,
        env__step_s=0.002,
    )
    with Run(folder, settings) as run:
        run.pid("collector-0" if victim == "parent" else victim)
        time.sleep(draw.uniform(0.0, 8.0))
        struck = time.monotonic()
        run.send(victim, signal.SIGKILL)
        code = run.finish(10)
        run.assert_nothing_left(10.0)
        gone = time.monotonic() - struck
        assert gone < 10.0, f"{victim}: {gone:.1f} s until everything was gone"
        if victim == "parent":
            assert code == -signal.SIGKILL
        else:
            assert code == 1, run.output
            tail = run.output[run.output.index("run failed:") :]
            assert victim in tail and "SIGKILL" in tail and f"logs/{victim}.log" in tail, run.output
    return gone


def main() -> None:
    """Prints one line a kill and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as root:
        for index in range(given.kills):
            victim = VICTIMS[index % len(VICTIMS)]
            seconds.append(kill_once(Path(root) / f"run{index}", victim, draw))
            print(f"{index + 1:3d} {victim}: all gone after {seconds[-1]:.1f} s", flush=True)
    print(
        f"{len(seconds)} kills, all gone within {max(seconds):.1f} s (mean {sum(seconds) / len(seconds):.1f} s)"
    )


if __name__ == "__main__":
    main()
