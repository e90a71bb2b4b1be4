"""Learning curves: their files, when one reaches a return, and whether it is finished.

A file holds JSON lines: a header (who, what, where, when), the evaluations, and the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

#: A peer is given at most this many times our time.
PATIENCE = 20.0

#: Ends after which a measurement is not made again. A failure is told, and tried again the next time.
FINISHED = ("threshold", "limit")


@dataclass(frozen=True)
class Point:
    """One evaluation: seconds of training, what they were used for, and the mean return."""

    elapsed_s: float
    steps: int
    updates: int | None
    value: float


@dataclass(frozen=True)
class Curve:
    """One training.

    Attributes:
        header: `peer`, `task`, `seed`, `threshold`, `limit_s`, and the facts for a reader.
        points: evaluations, oldest first.
        end: `reason` (`threshold`, `limit`, or `failed` with `why`).
    """

    header: dict[str, Any]
    points: tuple[Point, ...]
    end: dict[str, Any]

    @property
    def finished(self) -> bool:
        """It need not be measured again."""
        return self.end["reason"] in FINISHED

    @property
    def time_s(self) -> float | None:
        """Seconds to the threshold; None where it was not reached within the limit."""
        reached = time_to(self.points, self.header["threshold"])
        return reached if reached is not None and reached <= self.header["limit_s"] else None


def time_to(points: Sequence[Point], threshold: float) -> float | None:
    """Seconds until the return reached the threshold, or None.

    Evaluations are some time apart, and the truth lies between two of them. So the time is where the straight
    line from the last evaluation before the first one at or above the threshold crosses it: what a peer that is
    evaluated rarely would lose by waiting for its next evaluation is not counted against it. A first evaluation
    that is there already counts at its own time.
    """
    for at, point in enumerate(points):
        if point.value < threshold:
            continue
        if at == 0:
            return point.elapsed_s
        before = points[at - 1]
        share = (threshold - before.value) / (point.value - before.value)
        return before.elapsed_s + share * (point.elapsed_s - before.elapsed_s)
    return None


def limit_for(cap_s: float, ours: Iterable[Curve]) -> float:
    """Seconds that a peer is given: the cap, or `PATIENCE` times our median where all of ours got there."""
    times = [curve.time_s for curve in ours if curve.finished]
    reached = [time for time in times if time is not None]
    if not reached or len(reached) < len(times):
        return cap_s
    return min(cap_s, PATIENCE * median(reached))


def curve_path(out: Path, task: str, peer: str, seed: int) -> Path:
    """Where the curve of a training is kept."""
    return out / "curves" / f"{task}-{peer}-{seed}.jsonl"


def write_curve(path: Path, curve: Curve) -> None:
    """Writes the file as a whole, in place of an older one."""
    lines = [{"kind": "header", **curve.header}]
    lines += [
        {"kind": "eval", "elapsed_s": p.elapsed_s, "steps": p.steps, "updates": p.updates, "return": p.value}
        for p in curve.points
    ]
    lines.append({"kind": "end", **curve.end})
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.replace(new, path)


def read_curve(path: Path) -> Curve | None:
    """Reads a curve; None where there is none."""
    if not path.exists():
        return None
    header, *lines, end = [json.loads(line) for line in path.read_text().splitlines()]
    return Curve(_body(header), points_of(lines), _body(end))


def read_curves(out: Path) -> list[Curve]:
    """All curves of a directory, by name."""
    found = (read_curve(path) for path in sorted((out / "curves").glob("*.jsonl")))
    return [curve for curve in found if curve is not None]


def points_of(lines: Iterable[dict[str, Any]]) -> tuple[Point, ...]:
    """The evaluations among the lines of a curve or of a trainer's events."""
    return tuple(
        Point(line["elapsed_s"], line["steps"], line["updates"], line["return"])
        for line in lines
        if line["kind"] == "eval"
    )


def _body(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "kind"}
