"""SMT siblings: which CPUs share a core, and where a description does not say so, which ones probably do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def infer_node_cores(cpus: Sequence[int], smt: int, arch: str) -> list[tuple[int, ...]]:
    """Groups one node's CPUs into cores by the numbering that firmware uses on this architecture.

    x86 and aarch64 firmware numbers the first thread of every core, then the second of every core, so that
    the sibling of the k-th CPU of a node is the (k + n/smt)-th; POWER numbers a core's threads one by one.

    Args:
        cpus: all online CPUs of the node, also those this process may not use.
        smt: threads a core.
        arch: as ``uname -m`` says it.

    Returns:
        The cores; each CPU by itself where the count does not divide by `smt`.
    """
    ordered = sorted(cpus)
    count = len(ordered)
    if smt <= 1 or count % smt:
        return [(cpu,) for cpu in ordered]
    if arch.startswith("ppc"):
        return [tuple(ordered[i : i + smt]) for i in range(0, count, smt)]
    cores = count // smt
    return [tuple(ordered[i::cores]) for i in range(cores)]


def restrict(groups: Iterable[Sequence[int]], allowed: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Keeps the allowed CPUs of each group, drops empty groups; a CPU of no group gets one of its own."""
    left = set(allowed)
    result: list[tuple[int, ...]] = []
    for group in groups:
        kept = tuple(sorted(left.intersection(group)))
        if kept:
            left.difference_update(kept)
            result.append(kept)
    result.extend((cpu,) for cpu in left)
    return tuple(sorted(result))
