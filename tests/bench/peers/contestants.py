"""How each of the compared is started, and what its own record says so far."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from motrix_rl.metrics.reader import read_metrics
from tests.bench.peers.catalogue import EPISODES, HERE, PEERS, TASKS
from tests.bench.peers.curves import Point, points_of

ROOT = HERE.parents[2]
#: Our generations between two evaluations: a few seconds on two cores.
GENERATIONS = 250
#: Their environment steps between two evaluations: less than a minute at the slowest rates seen.
STEPS = 2000
#: Our training has no end of its own here.
FOREVER = 10**9


@dataclass(frozen=True)
class Progress:
    """What a trainer has recorded.

    Attributes:
        points: evaluations so far.
        clock_s: seconds of training as of its last record.
        started: Unix time at which its clock began; None before that.
        facts: versions, settings, and the like.
    """

    points: tuple[Point, ...] = ()
    clock_s: float = 0.0
    started: float | None = None
    facts: dict[str, Any] | None = None


class Contestant(ABC):
    """One training: how it is started, and how it gets on.

    Attributes:
        variables: for its environment; the processors are compared, so no GPU is to be seen.
        stops_itself: it ends at the threshold and at the limit.
        grace_s: seconds that it needs to end after SIGTERM.
    """

    variables: ClassVar[dict[str, str]] = {"CUDA_VISIBLE_DEVICES": "", "PYTHONNOUSERSITE": "1"}
    stops_itself = True
    grace_s = 5.0

    @abstractmethod
    def command(self) -> list[str]:
        """Words that start it."""

    @abstractmethod
    def progress(self) -> Progress:
        """What it has recorded so far."""


class Ours(Contestant):
    """`train.py` with the task's recipe.

    The clock is the run's own: from the barrier that all workers pass together, with everything imported and
    built. Evaluation runs beside the training, on the same cores and on the clock, and a return counts from the
    moment it is known.
    """

    stops_itself = False
    grace_s = 30.0

    def __init__(self, task: str, seed: int, work: Path) -> None:
        self.run_dir = work / "run"
        self._options = {
            "task": f"{task}/mujoco.fastsac",
            "seed": seed,
            "run_dir": self.run_dir,
            "eval.interval": GENERATIONS,
            "eval.episodes": EPISODES,
            "algo.trainer.num_learning_iterations": FOREVER,
            "logging.console": "plain",
        }

    def command(self) -> list[str]:
        words = [f"{key}={value}" for key, value in self._options.items()]
        return [sys.executable, str(ROOT / "train.py"), *words]

    def progress(self) -> Progress:
        records = read_metrics(self.run_dir / "metrics.jsonl")
        points: list[Point] = []
        updates = None
        for record in records:
            if record["kind"] == "train":
                updates = record.get("updates")
            elif record["kind"] == "eval":
                points.append(
                    Point(record["elapsed_s"], record["env_steps"], updates, record["eval"]["return_mean"])
                )
        if not records:
            return Progress()
        last = records[-1]
        facts = {"settings": {"recipe": self._options["task"], "eval.interval": GENERATIONS}}
        described = self.run_dir / "run.json"
        if described.exists():
            run = json.loads(described.read_text())
            facts |= {"versions": run["versions"], "git": run["git"]}
        return Progress(tuple(points), last["elapsed_s"], last["time"] - last["elapsed_s"], facts)


class Theirs(Contestant):
    """A trainer in `trainers/`, which keeps its own clock: it stands still while the policy is evaluated."""

    variables: ClassVar[dict[str, str]] = {**Contestant.variables, "JAX_PLATFORMS": "cpu"}

    def __init__(self, peer: str, task: str, seed: int, limit_s: float, work: Path, python: Path) -> None:
        self._events = work / "events.jsonl"
        script, *words = PEERS[peer].script
        options = {
            "env": TASKS[task].env_id,
            "threshold": TASKS[task].threshold,
            "seed": seed,
            "limit": limit_s,
            "episodes": EPISODES,
            "every": STEPS,
            "events": self._events,
        }
        self._command = [str(python), str(HERE / "trainers" / script), *words]
        for key, value in options.items():
            self._command += [f"--{key}", str(value)]

    def command(self) -> list[str]:
        return self._command

    def progress(self) -> Progress:
        events = read_metrics(self._events)
        points = points_of(events)
        start = next((event for event in events if event["kind"] == "start"), None)
        if start is None:
            return Progress()
        facts = {"versions": start["versions"], "settings": start["settings"]}
        return Progress(points, points[-1].elapsed_s if points else 0.0, start["time"], facts)
