"""Rates on the same work: ours and MotrixLab by turns, a round after the other, alone on the same cores."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from motrix_rl.errors import MotrixError
from tests.bench.peers.campaign import machine
from tests.bench.peers.children import Child, last_words
from tests.bench.peers.footprints import SharedNames, pss_mib
from tests.bench.peers.rate_sides import STEPPING, UPDATING, Load, OurSide, Sample, Side, TheirSide
from tests.bench.peers.robot import write_robot
from tests.bench.peers.venvs import python_of

#: Seconds after the first update before a window begins.
SETTLE_S = 3.0
#: Seconds between two looks at a record: before the first update, and at the end of a window.
LOOK_S, LATE_LOOK_S = 0.05, 0.5
#: Seconds that anything may take beyond what it is asked to measure: start, compilation, a full replay.
PATIENCE_S = 300.0

Found = TypeVar("Found")


@dataclass(frozen=True)
class Rates:
    """What is to be measured, and where it goes.

    Attributes:
        out: directory of `rates.json`, and of what the programs leave (`rates/`).
        venvs: directory of the peers' environments.
        cores: CPUs of a training; the first of them is the learner's when it runs alone.
        rounds: measurements of each figure on each side.
        seconds: of each measurement.
    """

    out: Path
    venvs: Path
    cores: Sequence[int]
    rounds: int
    seconds: float

    def run(self) -> dict[str, Any]:
        """Measures everything, and keeps what is finished after each measurement.

        Returns:
            What `rates.json` holds: facts, and for each round and side the figures by name, and `failed`, why those
            that are missing are.

        Raises:
            MotrixError: MotrixLab's environment could not be made; nothing was measured.
        """
        python = python_of("motrixlab", self.venvs)
        work = self.out / "rates"
        shutil.rmtree(work, ignore_errors=True)
        robot = write_robot(work / "robot")
        return self.measure([OurSide(robot), TheirSide(robot, python)])

    def measure(self, sides: Sequence[Side]) -> dict[str, Any]:
        """Measures these sides by turns; see `run`."""
        found: dict[str, Any] = {
            "machine": machine(),
            "cores": list(self.cores),
            "date": datetime.now().astimezone().isoformat(timespec="seconds"),
            "load_before": os.getloadavg()[0],
            "seconds": self.seconds,
            "versions": {},
            "rounds": [],
        }
        for number in range(self.rounds):
            figures: dict[str, Any] = {side.name: {"failed": []} for side in sides}
            found["rounds"].append(figures)
            # Who goes first changes: a machine that grows slower meanwhile does so for both.
            order = sides if number % 2 == 0 else sides[::-1]
            for what, measure in self._measurements().items():
                for side in order:
                    self._add(found, figures[side.name], side, f"{number}-{what}-{side.name}", measure)
        return found

    def _measurements(self) -> dict[str, Callable[[Side, Path], dict[str, Any]]]:
        def updating(side: Side, work: Path) -> dict[str, Any]:
            run = self._training(side, UPDATING, work)
            return {key: run[key] for key in ("updates_per_s", "start_s", "memory_mib", "memory_end_mib")}

        def stepping(side: Side, work: Path) -> dict[str, Any]:
            return {"steps_per_s": self._training(side, STEPPING, work)["steps_per_s"]}

        return {"learner": self._learner, "updating": updating, "stepping": stepping}

    def _add(
        self,
        found: dict[str, Any],
        figures: dict[str, Any],
        side: Side,
        name: str,
        measure: Callable[[Side, Path], dict[str, Any]],
    ) -> None:
        work = self.out / "rates" / name
        work.mkdir(parents=True, exist_ok=True)
        _tell(f"{name}: log in {work / 'log'}")
        try:
            figures.update(measure(side, work))
        except MotrixError as error:
            figures["failed"].append(f"{name}: {error}")
            _tell(f"{name}: failed: {error}")
        told = side.facts(work)
        versions = figures.pop("versions", None) or told.get("versions")
        if versions:
            found["versions"].setdefault(side.name, versions)
        for key in ("commit", "dirty"):
            if key in told:
                found.setdefault(key, told[key])
        keep(self.out, found)

    def _learner(self, side: Side, work: Path) -> dict[str, Any]:
        log = work / "log"
        command = side.learner(self.seconds, work)
        with self._child(side, command, work, self.cores[:1]) as child:
            code = child.wait(3 * self.seconds + PATIENCE_S)
        if code != 0:
            raise MotrixError(last_words(log) if code is not None else f"it hung; see {log}")
        return side.learner_figures(json.loads(last_words(log)))

    def _training(self, side: Side, load: Load, work: Path) -> dict[str, Any]:
        launched = time.time()
        with self._child(side, side.training(load, work), work, self.cores) as child:

            def until(find: Callable[[list[Sample]], Found | None], every_s: float) -> Found:
                return _wait(child, lambda: find(side.samples(load, work)), every_s, work / "log")

            first = until(first_update, LOOK_S)
            memory = pss_mib(child.members())
            child.wait(SETTLE_S + self.seconds)  # nobody looks meanwhile: that would cost the trainer
            begin, end = until(lambda samples: window(samples, SETTLE_S, self.seconds), LATE_LOOK_S)
            memory_end = pss_mib(child.members())
        spent = end.time - begin.time
        return {
            "updates_per_s": (end.updates - begin.updates) / spent,
            "steps_per_s": (end.steps - begin.steps) / spent,
            "start_s": first.time - launched,
            "memory_mib": memory,
            "memory_end_mib": memory_end,
        }

    @contextmanager
    def _child(self, side: Side, command: list[str], work: Path, cores: Sequence[int]) -> Iterator[Child]:
        """The program, of which nothing is left afterwards: no process, and no name in `/dev/shm`."""
        names = SharedNames()
        try:
            with Child(
                command,
                work / "log",
                cpus=cores,
                where=side.directory(work),
                variables=side.variables,
                grace_s=side.grace_s,
            ) as child:
                try:
                    yield child
                finally:
                    names.see(child.members())
        finally:
            names.remove()


def first_update(samples: Sequence[Sample]) -> Sample | None:
    """The first sample with an update, or None."""
    return next((sample for sample in samples if sample.updates), None)


def window(samples: Sequence[Sample], settle_s: float, seconds: float) -> tuple[Sample, Sample] | None:
    """The first sample `settle_s` after the first update, and the first one `seconds` after that.

    Returns:
        None as long as the record does not reach so far.
    """
    first = first_update(samples)
    begin = first and next((sample for sample in samples if sample.time >= first.time + settle_s), None)
    end = begin and next((sample for sample in samples if sample.time >= begin.time + seconds), None)
    return (begin, end) if begin and end else None


def keep(out: Path, found: dict[str, Any]) -> None:
    """Writes `rates.json` as a whole, in place of an older one."""
    path = out / "rates.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(new, path)


def _wait(child: Child, find: Callable[[], Found | None], every_s: float, log: Path) -> Found:
    """Looks until something is found.

    Raises:
        MotrixError: the program ended before, or takes too long.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := find()) is None:
        if child.wait(every_s) is not None:
            raise MotrixError(last_words(log))
        if time.monotonic() > deadline:
            raise MotrixError(f"it hung; see {log}")
    return found


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
