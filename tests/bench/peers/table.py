"""The curves as a table: seconds to the return, medians and ranges, and how many times ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from motrix_rl.errors import UsageError
from tests.bench.peers.catalogue import EPISODES, OURS, PEERS, TASKS
from tests.bench.peers.curves import Curve, read_curves

CLOCK = (
    "Seconds run from the start of training, when everything is imported, built and about to take its first step"
    " (start: the seconds from the launch to there), to a mean return of"
    f" {EPISODES} episodes without noise at or above the threshold, on the straight line between the evaluation"
    " before and that one. A peer's clock stands still while it is evaluated; ours does not."
)


def summary(curves: Sequence[Curve]) -> dict[str, Any]:
    """The table as plain data; a time is None where the threshold was not reached within `limit_s`.

    Args:
        curves: all that there are, of any task.
    """
    rows = []
    for task in TASKS:
        groups = {
            peer: [c for c in curves if (c.header["task"], c.header["peer"]) == (task, peer)]
            for peer in (OURS, *PEERS)
        }
        ours = _seconds(groups[OURS])
        rows += [_row(task, peer, group, ours) for peer, group in groups.items() if group]
    return {"clock": CLOCK, "rows": rows, "machines": _machines(curves)}


def _seconds(curves: Sequence[Curve]) -> list[float]:
    """Times of the finished, in order; infinite where the threshold was not reached."""
    return sorted(math.inf if c.time_s is None else c.time_s for c in curves if c.finished)


def _row(task: str, peer: str, curves: Sequence[Curve], ours: Sequence[float]) -> dict[str, Any]:
    times = _seconds(curves)
    finished = [curve for curve in curves if curve.finished]
    row: dict[str, Any] = {
        "task": task,
        "peer": peer,
        "threshold": TASKS[task].threshold,
        "seeds": [_seed(curve) for curve in curves],
        "failed": [curve.end["why"] for curve in curves if not curve.finished],
    }
    if not times:
        return row
    limit = min(curve.header["limit_s"] for curve in finished)
    middle, base = median(times), median(ours) if ours else math.inf
    row |= {
        "limit_s": limit,
        "median_s": _finite(middle),
        "min_s": _finite(times[0]),
        "max_s": _finite(times[-1]),
        "times_ours": None if math.isinf(base) else min(middle, limit) / base,
        "times_ours_is_a_bound": math.isinf(middle),
        "best_return": max((p.value for curve in finished for p in curve.points), default=None),
    }
    return row


def _seed(curve: Curve) -> dict[str, Any]:
    last = curve.points[-1] if curve.points else None
    facts = ("seed", "limit_s", "date", "start_s", "load_before")
    return {key: curve.header.get(key) for key in facts} | {
        "time_s": curve.time_s,
        "end": curve.end["reason"],
        "confirmed_return": curve.end.get("confirmed"),
        "last_return": last and last.value,
        "steps": last and last.steps,
        "updates": last and last.updates,
    }


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _machines(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Where, when and with what, each combination once."""
    found: list[dict[str, Any]] = []
    for curve in curves:
        facts = {
            "peer": curve.header["peer"],
            "machine": curve.header["machine"],
            "cores": curve.header["cores"],
            "date": curve.header["date"][:10],
            "versions": curve.header.get("versions", {}),
            "commit": (curve.header.get("git") or {}).get("commit"),
            "settings": curve.header.get("settings", {}),
        }
        if facts not in found:
            found.append(facts)
    return found


def load(out: Path) -> dict[str, Any]:
    """The summary of a directory.

    Raises:
        UsageError: there is no curve in it.
    """
    curves = read_curves(out)
    if not curves:
        raise UsageError(
            f"there are no curves in {out}; measure with: python -m tests.bench.peers run --out {out}"
        )
    return summary(curves)


def markdown(found: dict[str, Any]) -> str:
    """The summary as a Markdown table with what a reader must know below it."""
    lines = [
        "| task, return | peer | seconds, median (range) | seeds | times ours | start | steps, updates |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in found["rows"]]
    peers = list(dict.fromkeys(row["peer"] for row in found["rows"]))
    lines += ["", found["clock"], ""]
    lines += [f"- {peer}: {PEERS[peer].what}." for peer in peers if peer in PEERS]
    # Curves of several tasks differ in settings that the line does not have.
    lines += dict.fromkeys(_machine_line(facts) for facts in found["machines"])
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    seeds = row["seeds"]
    cells = [f"{row['task']}, {row['threshold']:.0f}", row["peer"], _times(row), str(len(seeds)), _ratio(row)]
    starts = [seed["start_s"] for seed in seeds if seed["start_s"] is not None]
    cells.append(f"{median(starts):.1f} s" if starts else "")
    spent = [f"{seed['steps']:,}, {seed['updates'] or 0:,}" for seed in seeds if seed["steps"] is not None]
    cells.append("; ".join(spent))
    return f"| {' | '.join(cells)} |"


def _times(row: dict[str, Any]) -> str:
    failed = "; ".join(f"failed: {why}" for why in row["failed"])
    if "limit_s" not in row:
        return failed
    beyond = f"> {row['limit_s']:.0f}"
    text = beyond if row["median_s"] is None else f"{row['median_s']:.0f}"
    if row["min_s"] != row["max_s"]:
        longest = beyond if row["max_s"] is None else f"{row['max_s']:.0f}"
        text += f" ({row['min_s']:.0f} to {longest})"
    if row["median_s"] is None and row["best_return"] is not None:
        text += f" (best return {row['best_return']:.0f})"
    return "; ".join(part for part in (text, failed) if part)


def _ratio(row: dict[str, Any]) -> str:
    ratio = row.get("times_ours")
    if ratio is None or row["peer"] == OURS:
        return ""
    return f"{'> ' if row['times_ours_is_a_bound'] else ''}{ratio:.1f}"


def _machine_line(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    commit = f", commit {facts['commit'][:10]}" if facts["commit"] else ""
    cores = ",".join(str(core) for core in facts["cores"])
    return (
        f"- {facts['peer']}, {facts['date']}, {facts['machine']['cpu']}, cores {cores}: {versions}{commit}."
    )
