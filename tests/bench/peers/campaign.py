"""Measures: one training after the other on the same cores, ours between theirs, and keeps the curves."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.peers.catalogue import EPISODES, OURS, TASKS
from tests.bench.peers.children import Child, last_words
from tests.bench.peers.contestants import ROOT, Contestant, Ours, Progress, Theirs
from tests.bench.peers.curves import Curve, curve_path, limit_for, read_curve, time_to, write_curve
from tests.bench.peers.venvs import python_of

#: Seconds between two looks at a trainer's record.
LOOK_S = 1.0
#: A trainer that has told nothing for so long beyond its limit hangs: start, compilation and evaluations need less.
HANGING_S = 600.0


@dataclass(frozen=True)
class Campaign:
    """What is to be measured, and where it goes.

    Attributes:
        out: directory of the curves and of what the trainings leave.
        venvs: directory of the peers' environments.
        peers, tasks: names of the catalogue.
        seeds: of ours.
        peer_seeds: of the peers.
        cores: CPUs that each training has, alone.
        cap_s: seconds after which anybody is stopped.
        again: measure also what has been measured.
    """

    out: Path
    venvs: Path
    peers: Sequence[str]
    tasks: Sequence[str]
    seeds: Sequence[int]
    peer_seeds: Sequence[int]
    cores: Sequence[int]
    cap_s: float
    again: bool

    def run(self) -> bool:
        """Measures everything; returns whether nothing failed.

        Raises:
            MotrixError: a peer's environment could not be made; nothing was measured.
        """
        pythons = {peer: python_of(peer, self.venvs) for peer in self.peers if peer != OURS}
        fine = True
        for task in self.tasks:
            for peer, seed in self._order():
                curve = self._kept(task, peer, seed)
                if curve is None:
                    curve = self._measure(task, peer, seed, pythons.get(peer))
                    write_curve(curve_path(self.out, task, peer, seed), curve)
                print(in_words(curve), flush=True)
                fine &= curve.finished
        return fine

    def _order(self) -> list[tuple[str, int]]:
        theirs = [(peer, seed) for peer in self.peers if peer != OURS for seed in self.peer_seeds]
        ours = [(OURS, seed) for seed in self.seeds] if OURS in self.peers else []
        return spread(ours, theirs)

    def _kept(self, task: str, peer: str, seed: int) -> Curve | None:
        curve = None if self.again else read_curve(curve_path(self.out, task, peer, seed))
        if curve is None or not curve.finished:
            return None
        print(f"kept from {curve.header['date']} (--again measures anew): ", end="")
        return curve

    def _measure(self, task: str, peer: str, seed: int, python: Path | None) -> Curve:
        work = self.out / "work" / f"{task}-{peer}-{seed}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        if python is None:
            limit_s = self.cap_s
            contestant: Contestant = Ours(task, seed, work)
        else:
            ours = (read_curve(curve_path(self.out, task, OURS, seed)) for seed in self.seeds)
            limit_s = limit_for(self.cap_s, [curve for curve in ours if curve is not None])
            contestant = Theirs(peer, task, seed, limit_s, work, python)
        header = {
            "peer": peer,
            "task": task,
            "seed": seed,
            "env_id": TASKS[task].env_id,
            "threshold": TASKS[task].threshold,
            "limit_s": limit_s,
            "cores": list(self.cores),
            "date": datetime.now().astimezone().isoformat(timespec="seconds"),
            "machine": machine(),
            "load_before": os.getloadavg()[0],
        }
        print(f"{task}, {peer}, seed {seed}: at most {limit_s:.0f} s; log: {work / 'log'}", flush=True)
        launched = time.time()
        progress, end = follow(contestant, work, header, self.cores)
        if progress.started is not None:
            header["start_s"] = progress.started - launched
        curve = Curve(header | (progress.facts or {}), progress.points, end)
        if isinstance(contestant, Ours) and curve.time_s is not None:
            curve.end["confirmed"] = _confirmed(contestant, TASKS[task].env_id, work)
        return curve


def spread(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    """Puts ours evenly between theirs, one of ours first: a machine that changes meanwhile changes for both."""
    ordered: list[Any] = []
    at = 0
    for k, one in enumerate(ours):
        until = -(-k * len(theirs) // len(ours))
        ordered += [*theirs[at:until], one]
        at = until
    return [*ordered, *theirs[at:]]


def follow(
    contestant: Contestant, work: Path, header: dict[str, Any], cores: Sequence[int]
) -> tuple[Progress, dict[str, Any]]:
    """Starts a training and stays until it has ended or is ended.

    Returns:
        What it recorded, and how it ended (`Curve.end`).
    """
    log = work / "log"
    deadline = time.monotonic() + 3 * header["limit_s"] + HANGING_S
    with Child(
        contestant.command(),
        log,
        cpus=cores,
        where=work,
        variables=contestant.variables,
        grace_s=contestant.grace_s,
    ) as child:
        while True:
            code = child.wait(LOOK_S)
            progress = contestant.progress()
            if time_to(progress.points, header["threshold"]) is not None:
                return progress, {"reason": "threshold"}
            if progress.clock_s >= header["limit_s"] or (code == 0 and contestant.stops_itself):
                return progress, {"reason": "limit"}
            if code is not None:
                return progress, {"reason": "failed", "why": last_words(log)}
            if time.monotonic() > deadline:
                return progress, {"reason": "failed", "why": f"it hung; see {log}"}


def machine() -> dict[str, Any]:
    """The machine in a few words."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": found.group(1) if found else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
    }


def in_words(curve: Curve) -> str:
    """A curve in one line."""
    who = f"{curve.header['task']}, {curve.header['peer']}, seed {curve.header['seed']}"
    if not curve.finished:
        return f"{who}: failed: {curve.end['why']}"
    if curve.time_s is not None:
        return f"{who}: {curve.header['threshold']:.0f} after {curve.time_s:.1f} s"
    values = [point.value for point in curve.points]
    best = f"best return {max(values):.0f}" if values else "not evaluated by then"
    return f"{who}: > {curve.header['limit_s']:.0f} s ({best})"


def _confirmed(ours: Ours, env_id: str, work: Path) -> float | None:
    """The return of the policy that passed, in Gymnasium's environment; None where it could not be played."""
    log = work / "confirm.log"
    command = [ours.command()[0], "-m", "tests.bench.peers.confirm", str(ours.run_dir), env_id, str(EPISODES)]
    with Child(command, log, where=ROOT) as child:
        code = child.wait(HANGING_S)
    return float(last_words(log)) if code == 0 else None
