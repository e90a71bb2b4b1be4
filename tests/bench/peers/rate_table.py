"""The rates as a table: medians and ranges, and ours over theirs round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.peers.catalogue import OURS
from tests.bench.peers.rate_sides import BATCH, STEPPING, THEIRS, UPDATING
from tests.bench.peers.rates import SETTLE_S


@dataclass(frozen=True)
class Kind:
    """One figure of the table.

    Attributes:
        name: in a round's figures.
        what: in words, with the unit.
        digits: after the point.
        factor: from the figure to its unit.
    """

    name: str
    what: str
    digits: int = 0
    factor: float = 1.0


KINDS = (
    Kind("learner_updates_per_s", f"learner alone, one thread, batch {BATCH}: updates/s", 1),
    Kind("gemm_share", "of what the same core does in a large matrix product: %", 0, 100.0),
    Kind(
        "updates_per_s",
        f"training, {UPDATING.num_envs} environments, {UPDATING.num_updates} updates a generation: updates/s",
        1,
    ),
    Kind(
        "steps_per_s",
        f"training, {STEPPING.num_envs} environments, {STEPPING.num_updates} update a generation:"
        " environment steps/s",
    ),
    Kind("start_s", f"launch to first update, {UPDATING.num_envs} environments: s", 1),
    Kind("memory_mib", "memory of all its processes then, PSS: MiB"),
    Kind("memory_end_mib", "memory at the end of that window, PSS: MiB"),
)


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """What was found, with the table as plain data.

    Args:
        found: what `Rates.run` returns.
    """
    rounds = [with_share(one) for one in found["rounds"]]
    failed = [why for one in rounds for side in one.values() for why in side["failed"]]
    return {**found, "rounds": rounds, "rows": [_row(kind, rounds) for kind in KINDS], "failed": failed}


def with_share(one: dict[str, Any]) -> dict[str, Any]:
    """A round in which their learner has its share of the core too: same operations, same product, same round."""
    ours, theirs = one.get(OURS, {}), dict(one.get(THEIRS, {}))
    rate = theirs.get("learner_updates_per_s")
    if rate is not None and "gemm_gflop_s" in ours:
        theirs["gemm_share"] = rate * ours["flops_per_update"] / (1e9 * ours["gemm_gflop_s"])
    return one | ({THEIRS: theirs} if theirs else {})


def _row(kind: Kind, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = {
        side: [one[side][kind.name] for one in rounds if kind.name in one.get(side, {})]
        for side in (OURS, THEIRS)
    }
    both = [one for one in rounds if all(kind.name in one.get(side, {}) for side in (OURS, THEIRS))]
    ratios = [one[OURS][kind.name] / one[THEIRS][kind.name] for one in both if one[THEIRS][kind.name]]
    return {
        "figure": kind.name,
        "what": kind.what,
        **{side: _spread(found) for side, found in values.items()},
        "ratio": _spread(ratios),
    }


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Median, range and values in the order of the rounds; None where there are none."""
    if not values:
        return None
    return {"median": median(values), "min": min(values), "max": max(values), "values": list(values)}


def markdown(table: dict[str, Any]) -> str:
    """The summary as a Markdown table with what a reader must know below it."""
    lines = ["| figure | ours | MotrixLab | ours / MotrixLab |", "|---|---|---|---|"]
    for kind, row in zip(KINDS, table["rows"], strict=True):
        cells = [_cell(row[side], kind.digits, kind.factor) for side in (OURS, THEIRS)]
        lines.append(f"| {' | '.join([kind.what, *cells, _cell(row['ratio'], 2)])} |")
    count, cores = len(table["rounds"]), ",".join(str(core) for core in table["cores"])
    lines += [
        "",
        f"Medians (ranges) of {count} {'round' if count == 1 else 'rounds'} in which both were measured by turns,"
        f" {table['seconds']:g} s each, from {SETTLE_S:g} s after the first update; a ratio is that of a round. Of"
        " seconds and MiB less is better. Their share counts our operations of an update.",
        "",
        f"- {table['date'][:10]}, {table['machine']['cpu']}, cores {cores} (the first for the learner alone),"
        f" load {table['load_before']:.1f} before.",
    ]
    for side, versions in table["versions"].items():
        commit = f", commit {table['commit'][:10]}" if side == OURS and table.get("commit") else ""
        commit += " with changes" if commit and table.get("dirty") else ""
        named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        lines.append(f"- {side}: {named}{commit}.")
    lines += [f"- failed: {why}" for why in table["failed"]]
    return "\n".join(lines)


def _cell(spread: dict[str, Any] | None, digits: int, factor: float = 1.0) -> str:
    if spread is None:
        return ""
    middle, low, high = (f"{factor * spread[key]:,.{digits}f}" for key in ("median", "min", "max"))
    single = len(spread["values"]) == 1 or math.isclose(spread["min"], spread["max"])
    return middle if single else f"{middle} ({low} to {high})"
