"""The control block: what every worker says about itself, and why the run stops.

One row per worker, written by that worker alone, read by the parent; one row written by the parent. Every
word is an aligned int64, so no read is torn; words of one row may be an instant apart, which a monitor bears.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transport.memory import SharedBlock

_ROW_WORDS = 40  # five cache lines
_HEARTBEAT, _PHASE, _PHASE_SINCE, _COLLECTIVE_SEQ, _PID, _INCARNATION = range(6)
_COUNTERS = 8
_PHASE_NS = 16
_STOP_REASON, _STOP_AUTHOR = 0, 1

PARENT = -1
"""The author of a stop that no worker caused."""


class Phase(IntEnum):
    """What a worker is doing."""

    STARTING = 0
    IMPORTING = 1
    BUILDING = 2
    READY = 3
    STEPPING = 4
    WAITING = 5
    UPDATING = 6
    SAVING = 7
    EVALUATING = 8
    COLLECTIVE = 9
    STOPPING = 10
    DONE = 11
    ACTING = 12
    INGESTING = 13
    COMPILING = 14


class Counter(IntEnum):
    """A worker's counters, cumulative over its incarnations."""

    GENERATION = 0
    ENV_STEPS = 1
    UPDATES = 2
    POLICY_VERSION = 3
    EPISODES = 4
    NONFINITE = 5
    SAVED = 6


class StopReason(IntEnum):
    """Why the run stops."""

    NONE = 0
    FINISHED = 1
    INTERRUPTED = 2
    TERMINATED = 3
    BOOT_FAILED = 4
    BOOT_TIMEOUT = 5
    WORKER_DIED = 6
    WORKER_HUNG = 7
    DEADLOCK = 8
    ERROR = 9


@dataclass(frozen=True)
class WorkerSnapshot:
    """A worker's row at one instant. Times are nanoseconds of CLOCK_MONOTONIC."""

    name: str
    pid: int
    incarnation: int
    phase: Phase
    phase_since_ns: int
    heartbeat_ns: int
    """0 before the first."""
    collective_seq: int
    generation: int
    env_steps: int
    updates: int
    policy_version: int
    episodes: int
    nonfinite: int
    saved: int
    phase_ns: Mapping[Phase, int]
    """Time spent in each phase so far, the current one included."""
    taken_ns: int

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the last heartbeat; infinite before the first."""
        return (self.taken_ns - self.heartbeat_ns) / 1e9 if self.heartbeat_ns else float("inf")

    @property
    def phase_age_s(self) -> float:
        """Seconds in the current phase."""
        return (self.taken_ns - self.phase_since_ns) / 1e9 if self.phase_since_ns else 0.0


class ControlBlock:
    """The rows, made by the parent and passed to every worker."""

    def __init__(self, workers: tuple[str, ...], block: SharedBlock) -> None:
        self.workers = workers
        self._block = block

    @classmethod
    def create(cls, workers: Sequence[str]) -> ControlBlock:
        """Make a zeroed block with a row for each worker, by unique name."""
        if len(set(workers)) != len(workers):
            raise ValueError(f"worker names must be unique, got {list(workers)}")
        return cls(tuple(workers), SharedBlock.create((len(workers) + 1) * _ROW_WORDS * 8, "control block"))

    def board(self, worker: str, incarnation: int = 0) -> WorkerBoard:
        """The writing end of ``worker``'s row, for the process that is that worker."""
        return WorkerBoard(self._rows()[self._index(worker)], incarnation)

    def reset(self, worker: str) -> None:
        """In the parent, between the reaping of one incarnation and the start of the next: clear its state.

        Counters and phase times stay, they go on.
        """
        self._rows()[self._index(worker), :_COUNTERS] = 0

    def snapshot(self) -> list[WorkerSnapshot]:
        """All workers, in the order they were named."""
        rows = self._rows()
        return [_snapshot(name, rows[i].copy(), time.monotonic_ns()) for i, name in enumerate(self.workers)]

    def set_stop(self, reason: StopReason, author: int | str = PARENT) -> None:
        """In the parent: record why the run stops; the first reason stays.

        Args:
            reason: why.
            author: the worker that caused it, by name or index, or `PARENT`.
        """
        row = self._rows()[len(self.workers)]
        if int(row[_STOP_REASON]) == StopReason.NONE:
            row[_STOP_AUTHOR] = self._index(author) if isinstance(author, str) else author
            row[_STOP_REASON] = reason

    @property
    def stop_reason(self) -> StopReason:
        return StopReason(int(self._rows()[len(self.workers), _STOP_REASON]))

    @property
    def stop_author(self) -> int:
        """Index of the worker that caused the stop, or `PARENT`; meaningful once there is a reason."""
        return int(self._rows()[len(self.workers), _STOP_AUTHOR])

    def close(self) -> None:
        """Give up this process's hold."""
        self._block.close()

    def _index(self, worker: str) -> int:
        if worker not in self.workers:
            raise ValueError(f"no worker is called {worker!r}; there are {', '.join(self.workers)}")
        return self.workers.index(worker)

    def _rows(self) -> NDArray[np.int64]:
        return self._block.ndarray(np.int64, (len(self.workers) + 1, _ROW_WORDS))


class WorkerBoard:
    """The writing end of one worker's row; that worker alone has it, and uses it from one thread."""

    def __init__(self, row: NDArray[np.int64], incarnation: int) -> None:
        self._row = row
        self._phase = Phase.STARTING
        self._since = time.monotonic_ns()
        row[_PID] = os.getpid()
        row[_INCARNATION] = incarnation
        row[_PHASE_SINCE] = self._since
        row[_PHASE] = self._phase
        row[_HEARTBEAT] = self._since

    @property
    def phase(self) -> Phase:
        return self._phase

    def set_phase(self, phase: Phase) -> None:
        """Enter ``phase``; the time of the one left is added up. Also a heartbeat."""
        now = time.monotonic_ns()
        self._row[_PHASE_NS + self._phase] += now - self._since
        # Since before phase: a reader in between sees the old phase too young, never the new one too old.
        self._row[_PHASE_SINCE] = now
        self._row[_PHASE] = phase
        self._row[_HEARTBEAT] = now
        self._phase, self._since = phase, now

    def beat(self) -> None:
        """A heartbeat: this worker made progress just now."""
        self._row[_HEARTBEAT] = time.monotonic_ns()

    def add(self, counter: Counter, amount: int = 1) -> None:
        """Add to a counter."""
        self._row[_COUNTERS + counter] += amount

    def set(self, counter: Counter, value: int) -> None:
        """Set a counter."""
        self._row[_COUNTERS + counter] = value

    def set_collective_seq(self, sequence: int) -> None:
        """Say which collective operation is entered next."""
        self._row[_COLLECTIVE_SEQ] = sequence


def _snapshot(name: str, row: NDArray[np.int64], now_ns: int) -> WorkerSnapshot:
    words: list[Any] = row.tolist()
    phase = Phase(words[_PHASE])
    phase_ns = {p: int(words[_PHASE_NS + p]) for p in Phase}
    if words[_PHASE_SINCE]:
        phase_ns[phase] += max(0, now_ns - words[_PHASE_SINCE])
    counters = words[_COUNTERS : _COUNTERS + len(Counter)]
    return WorkerSnapshot(
        name,
        words[_PID],
        words[_INCARNATION],
        phase,
        words[_PHASE_SINCE],
        words[_HEARTBEAT],
        words[_COLLECTIVE_SEQ],
        *counters,
        phase_ns=phase_ns,
        taken_ns=now_ns,
    )
