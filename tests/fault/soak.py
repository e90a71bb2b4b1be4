"""A long training, watched for what grows: `python -m tests.fault.soak --minutes 30`.

Samples memory, descriptors and threads of every process of the run. After the warm-up (replay full, first saves and
evaluations over) memory of all together may grow by less than 1 MB a minute, descriptors and threads of no process
at all. Words after the options are settings of `train.py`; what is not given is `halfcheetah` as shipped, with a
replay that is full before the warm-up is over. Prints a table; ends with 1 where something grew.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.e2e.running import Run

LIMIT_MB_A_MINUTE = 1.0
SAMPLE_S = 5.0
#: A replay of this size is written once after two to three minutes; until then its pages are being touched.
SETTINGS: dict[str, Any] = {
    "task": "halfcheetah/mujoco.fastsac",
    "algo.agent.buffer_size": 100_000,
    "algo.trainer.num_learning_iterations": 10_000_000,
    "checkpoint.interval": 500,
    "logging.console": "plain",
}


@dataclass
class History:
    """One process over time.

    Attributes:
        minutes: when each sample was taken, from the start.
        memory: bytes that are its own (USS): what would come back if it ended.
        descriptors: open ones.
        threads: living ones.
    """

    minutes: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def slope_mb(self) -> float:
        """Growth of memory by least squares, MB a minute."""
        if len(self.minutes) < 2:
            return 0.0
        return float(np.polyfit(self.minutes, np.asarray(self.memory) / 1e6, 1)[0])

    def grown(self) -> list[str]:
        """What of the countable things stands higher in the last quarter than in the first."""
        quarter = max(1, len(self.minutes) // 4)
        counted = {"descriptors": self.descriptors, "threads": self.threads}
        return [
            f"{name} {np.median(values[:quarter]):.0f} -> {np.median(values[-quarter:]):.0f}"
            for name, values in counted.items()
            if np.median(values[-quarter:]) > np.median(values[:quarter])
        ]


def watch(run: Run, names: dict[int, str], until: float, began: float) -> dict[str, History]:
    """Samples all processes of the run until a time of the monotonic clock."""
    histories: dict[str, History] = {}
    while time.monotonic() < until:
        assert run.process.poll() is None, f"the run ended by itself\n{run.output[-3000:]}"
        minute = (time.monotonic() - began) / 60
        for pid in run.members():
            process = psutil.Process(pid)
            try:
                memory = process.memory_full_info().uss
                counts = process.num_fds(), process.num_threads()
            except psutil.NoSuchProcess:
                continue
            history = histories.setdefault(names.get(pid, f"process {pid}"), History())
            history.minutes.append(minute)
            history.memory.append(memory)
            history.descriptors.append(counts[0])
            history.threads.append(counts[1])
        time.sleep(min(SAMPLE_S, max(0.0, until - time.monotonic())))
    return histories


def soak(directory: Path, settings: dict[str, Any], warm_up_s: float, watched_s: float) -> dict[str, History]:
    """Trains, and returns what was seen after the warm-up. The run must end well on Ctrl-C, and leave nothing."""
    workers = ["collector-0", "learner-0", "evaluator"]
    with Run(directory, settings) as run:
        names = {run.process.pid: "supervisor"} | {run.pid(worker): worker for worker in workers}
        began = time.monotonic()
        run.until(lambda: time.monotonic() - began > warm_up_s, warm_up_s + 60, "the warm-up is over")
        histories = watch(run, names, began + warm_up_s + watched_s, began)
        run.send("parent", signal.SIGINT)
        assert run.finish(120) == 0, run.output[-3000:]
        run.assert_nothing_left()
    return histories


def total_slope_mb(histories: dict[str, History]) -> float:
    """Growth of memory of all processes together, MB a minute."""
    return sum(history.slope_mb() for history in histories.values())


def faults(histories: dict[str, History], limit_mb: float = LIMIT_MB_A_MINUTE) -> list[str]:
    """What grew more than it may."""
    found = [f"{name}: {what}" for name, history in histories.items() for what in history.grown()]
    total = total_slope_mb(histories)
    if total >= limit_mb:
        found.append(f"memory grows by {total:.2f} MB a minute, {limit_mb} are allowed")
    return found


def table(histories: dict[str, History]) -> str:
    """In Markdown, a process a line, and all together."""
    lines = [
        "| process | memory, MB, first to last | growth, MB a minute | descriptors | threads |",
        "|---|---|---|---|---|",
    ]
    for name, h in histories.items():
        lines.append(
            f"| {name} | {h.memory[0] / 1e6:.1f} to {h.memory[-1] / 1e6:.1f} | {h.slope_mb():+.3f} "
            f"| {min(h.descriptors)} to {max(h.descriptors)} | {min(h.threads)} to {max(h.threads)} |"
        )
    return "\n".join([*lines, f"| all | | {total_slope_mb(histories):+.3f} | | |"])


def main(words: list[str]) -> int:
    """Runs it; returns 0 when nothing grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of watching (default: 30)")
    parser.add_argument("--warm-up", type=float, default=5.0, help="minutes before that (default: 5)")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of train.py")
    given = parser.parse_args(words)
    settings = SETTINGS | dict(word.split("=", 1) for word in given.settings)
    with tempfile.TemporaryDirectory() as folder:
        histories = soak(Path(folder) / "run", settings, given.warm_up * 60, given.minutes * 60)
    print(table(histories))
    found = faults(histories)
    print("\n".join(found or ["nothing grew"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
