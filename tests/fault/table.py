"""The fault table: what must happen when each kind of fault hits each worker in each part of a run.

Two collectors and two learners. `python -m tests.fault.table TIMES` prints the table in Markdown, with the
seconds from fault to outcome that the tests left in the file TIMES (one JSON record a line).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any, Literal

KINDS = ("kill", "stop", "raise", "nan", "slow")
WORKERS = ("collector-0", "learner-0", "learner-1", "parent")
PARTS = ("boot", "warm-up", "training", "checkpoint", "shutdown")

Outcome = Literal["fails", "restarted", "finishes", "gone", "n/a"]

#: What each outcome means; the tests assert it.
OUTCOMES: dict[Outcome, str] = {
    "fails": "the run ends with exit code 1, the culprit's name, its log and its error file",
    "restarted": "the worker is named and started again, the run finishes, updates are exactly those owed",
    "finishes": "the run finishes, updates are exactly those owed",
    "gone": "every process leaves by itself",
    "n/a": "cannot happen",
}

#: Where a part of a run is found: phase, occurrence.
MOMENTS: dict[tuple[str, str], str] = {
    ("collector", "boot"): "building:1",
    ("collector", "warm-up"): "stepping:5",
    ("collector", "training"): "stepping:30",
    ("collector", "checkpoint"): "saving:1",
    ("collector", "shutdown"): "done:1",
    ("learner", "boot"): "building:1",
    ("learner", "warm-up"): "ingesting:2",
    ("learner", "training"): "updating:4",
    ("learner", "checkpoint"): "saving:1",
    ("learner", "shutdown"): "done:1",
    ("parent", "boot"): "boot:1",
    ("parent", "warm-up"): "warm-up:1",
    ("parent", "training"): "training:1",
    ("parent", "checkpoint"): "saving:1",
    ("parent", "shutdown"): "shutdown:1",
}

#: Outcomes in the order of PARTS. At boot nothing is repaired: whoever dies ends it.
TABLE: dict[tuple[str, str], tuple[Outcome, Outcome, Outcome, Outcome, Outcome]] = {
    ("kill", "collector"): ("fails", "restarted", "restarted", "restarted", "finishes"),
    ("kill", "learner"): ("fails", "fails", "fails", "fails", "fails"),
    ("kill", "parent"): ("gone", "gone", "gone", "gone", "gone"),
    ("stop", "collector"): ("fails", "restarted", "restarted", "restarted", "finishes"),
    # After its last step a stopped learner, woken for its stacks, has nothing to do but to leave.
    ("stop", "learner"): ("fails", "fails", "fails", "fails", "finishes"),
    ("stop", "parent"): ("finishes", "finishes", "finishes", "finishes", "finishes"),
    ("raise", "collector"): ("fails", "restarted", "restarted", "restarted", "finishes"),
    ("raise", "learner"): ("fails", "fails", "fails", "fails", "fails"),
    ("raise", "parent"): ("fails", "fails", "fails", "fails", "fails"),
    ("nan", "collector"): ("n/a", "finishes", "finishes", "n/a", "n/a"),
    ("nan", "learner"): ("n/a", "n/a", "finishes", "n/a", "n/a"),
    ("nan", "parent"): ("n/a", "n/a", "n/a", "n/a", "n/a"),
    ("slow", "collector"): ("finishes", "finishes", "finishes", "finishes", "finishes"),
    ("slow", "learner"): ("finishes", "finishes", "finishes", "finishes", "finishes"),
    ("slow", "parent"): ("finishes", "finishes", "finishes", "finishes", "finishes"),
}

#: Seconds that an ordered slowness takes, each time: ten times a step, and long pauses elsewhere.
SLOW_S = {"warm-up": 0.05, "training": 0.05}

NOT_APPLICABLE = {
    ("nan", "parent"): "the parent handles no numbers",
    ("nan", "learner"): "there are gradients in training only",
    ("nan", "collector"): "an environment is stepped in warm-up and training only",
}


@dataclass(frozen=True)
class Cell:
    """One cell of the table."""

    kind: str
    worker: str
    part: str

    @property
    def role(self) -> str:
        return self.worker.partition("-")[0]

    @property
    def outcome(self) -> Outcome:
        return TABLE[self.kind, self.role][PARTS.index(self.part)]

    @property
    def order(self) -> str:
        """The value of MOTRIX_RL_FAULT."""
        name = "supervisor" if self.role == "parent" else self.worker
        moment = MOMENTS[self.role, self.part]
        if self.kind == "slow":
            moment = f"{moment}{'+' if self.part in SLOW_S else ''}:{SLOW_S.get(self.part, 2)}"
        order = f"{self.kind}:{name}:{moment}"
        # The parent looks four times a second; a longer save is one it cannot miss.
        widened = self.role == "parent" and self.part == "checkpoint"
        return f"slow:learner-0:saving:1:1.5;{order}" if widened else order

    @property
    def in_ci(self) -> bool:
        """SIGKILL everywhere; the others once a kind of worker."""
        once = self.part == "training" and self.worker != "learner-0"
        return self.kind == "kill" or once

    @property
    def limit_s(self) -> float:
        """Seconds from fault to outcome, on a busy machine. A hang counts after 4 s, a boot after its limit."""
        own = {"stop": 8.0, "slow": 20.0, "nan": 20.0}.get(self.kind, 0.0)
        boot = 40.0 if self.outcome == "restarted" else 0.0  # the successor's
        late = 45.0 if (self.kind, self.part) == ("stop", "boot") else 0.0
        finish = 60.0 if self.outcome == "finishes" else 0.0
        return 15.0 + own + boot + late + finish

    def __str__(self) -> str:
        return f"{self.kind}-{self.worker}-{self.part}"


CELLS = [Cell(kind, worker, part) for kind in KINDS for worker in WORKERS for part in PARTS]


def markdown(times: dict[str, float]) -> str:
    """The table as a page shows it."""
    lines = [f"| fault | worker | {' | '.join(PARTS)} |", "|---" * (2 + len(PARTS)) + "|"]
    for kind in KINDS:
        for worker in WORKERS:
            cells = [Cell(kind, worker, part) for part in PARTS]
            shown = [_shown(cell, times.get(str(cell))) for cell in cells]
            lines.append(f"| {kind} | {worker} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(cell: Cell, seconds: float | None) -> str:
    return cell.outcome if seconds is None else f"{cell.outcome}, {seconds:.1f} s"


def main(words: list[str]) -> None:
    """Prints the table; the newest time of a cell counts."""
    times: dict[str, float] = {}
    for path in words:
        with open(path, encoding="utf-8") as file:
            records: list[dict[str, Any]] = [json.loads(line) for line in file]
        times |= {record["cell"]: record["seconds"] for record in records}
    print(markdown(times))


if __name__ == "__main__":
    main(sys.argv[1:])
