"""Which worker is hung, and whether all wait for one another."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from motrix_rl.logs import STACK_SIGNAL
from transport import ControlBlock, Phase, WorkerSnapshot
from workers.fleet import Worker, send_signal

#: A worker in one of these waits for others.
WAITS = frozenset({Phase.WAITING, Phase.COLLECTIVE, Phase.READY, Phase.DONE})
#: No limit of their own: waiting for others, and work of which nobody can say how long it takes.
UNLIMITED = WAITS | {Phase.SAVING, Phase.STOPPING}
BOOTING = frozenset({Phase.STARTING, Phase.IMPORTING, Phase.BUILDING, Phase.COMPILING})

#: The most that one look adds to a time: what went on while nobody looked (a stopped parent, a machine that slept)
#: was not seen.
GLANCE_S = 1.0
#: Workers that a line names one by one.
NAMED = 8


class Standstill:
    """How long all workers have waited without any counter of any of them moving."""

    def __init__(self) -> None:
        self._counters: list[tuple[int, ...]] = []
        self._looked_at = 0.0
        self._seconds = 0.0

    def look(self, rows: Sequence[WorkerSnapshot], now: float, *, excused: bool = False) -> float:
        """Seconds of standstill that were seen so far, up to this look.

        Args:
            rows: what the living workers say of themselves.
            now: monotonic seconds.
            excused: somebody is about to end it; the time begins anew.
        """
        counters = [_counters(row) for row in rows]
        waits = bool(rows) and all(row.phase in WAITS for row in rows) and not excused
        seen = min(now - self._looked_at, GLANCE_S)
        self._seconds = self._seconds + seen if waits and counters == self._counters else 0.0
        self._counters, self._looked_at = counters, now
        return self._seconds


def _counters(row: WorkerSnapshot) -> tuple[int, ...]:
    """All that moves when a worker gets on; its heartbeat goes on in a wait, too."""
    return (row.pid, row.collective_seq, row.generation, row.env_steps, row.updates,
            row.policy_version, row.episodes, row.nonfinite, row.saved)  # fmt: skip


def left_behind(rows: Sequence[WorkerSnapshot]) -> str | None:
    """The rank that all others are ahead of, where every rank waits in a collective; None where none is.

    A rank that waits elsewhere rightly waits for data, and its peers in the next collective for it.
    """
    ranks = [row for row in rows if row.name.startswith("learner")]
    if any(row.phase is not Phase.COLLECTIVE for row in ranks):
        return None
    lowest = min((row.collective_seq for row in ranks), default=0)
    behind = [row.name for row in ranks if row.collective_seq == lowest]
    return behind[0] if len(behind) == 1 < len(ranks) else None


def told(rows: Sequence[WorkerSnapshot]) -> str:
    """Who waits, and in what."""
    words = [
        f"{row.name} {row.phase.name.lower()}{f' {row.collective_seq}' if row.phase is Phase.COLLECTIVE else ''}"
        for row in rows[:NAMED]
    ]
    return ", ".join(words) + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else "")


class Watchdog:
    """Finds the culprit: the worker that is stopped, or that works without a heartbeat; or that there is none.

    Waiting for others has no limit: whoever waits is a victim, not the culprit. When all wait and nothing moves,
    nobody will ever end it: a deadlock.

    Args:
        heartbeat_timeout_s: limit for a phase of work, and for a stopped process.
        boot_timeout_s: limit for the boot of a worker that was started again.
    """

    def __init__(self, heartbeat_timeout_s: float, boot_timeout_s: float) -> None:
        self._limit = heartbeat_timeout_s
        self._boot_limit = boot_timeout_s
        self._stopped_since: dict[int, float] = {}
        self._standstill = Standstill()
        self._looked_at = self._back_at = 0.0

    def hung(self, workers: list[Worker], control: ControlBlock) -> tuple[Worker, str] | None:
        """The first hung worker and why it counts as hung, or None."""
        now = time.monotonic()
        if now - self._looked_at > max(GLANCE_S, self._limit / 2):
            self._back_at = now  # this process did not look: others may have been stopped with it
        self._looked_at = now
        rows = {row.name: row for row in control.snapshot()}
        for worker in workers:
            row = rows[worker.name]
            if self._stopped_for(worker, now) > self._limit:
                return worker, f"stopped for more than {self._limit:g} s"
            if row.phase in UNLIMITED:
                continue
            limit = self._boot_limit if row.phase in BOOTING else self._limit
            since = max(worker.started_at, row.heartbeat_ns / 1e9, self._back_at)
            if now - since > limit and worker.process.pid in self._stopped_since:
                phase = row.phase.name.lower()
                return worker, f"stopped in phase {phase}, no progress for more than {limit:g} s"
            if now - since > limit:
                return worker, f"no progress in phase {row.phase.name.lower()} for more than {limit:g} s"
        return None

    def deadlock(
        self, workers: list[Worker], control: ControlBlock, *, starting: bool = False
    ) -> tuple[str | None, str] | None:
        """Whether all of a run's workers have waited for too long: the rank left behind, if one was, and why.

        Called at every turn at which nobody is hung.

        Args:
            workers: the living ones of the whole run: who waits for another machine may do so rightly.
            control: their rows.
            starting: one that has died is about to be started again.
        """
        names = {worker.name for worker in workers}
        rows = [row for row in control.snapshot() if row.name in names]
        # Of a stopped worker `hung` decides: it may be continued.
        seconds = self._standstill.look(rows, time.monotonic(), excused=starting or bool(self._stopped_since))
        if seconds <= self._limit:
            return None
        return left_behind(rows), f"all have waited for more than {self._limit:g} s: {told(rows)}"

    def getting_on(self, workers: list[Worker], control: ControlBlock, work: Collection[Phase]) -> list[str]:
        """Who is at this work, neither stopped nor without a sign of life for too long, and what it does."""
        rows = {row.name: row for row in control.snapshot()}
        at_it = [worker for worker in workers if rows[worker.name].phase in work]
        return [
            f"{worker.name} ({rows[worker.name].phase.name.lower()})"
            for worker in at_it
            if rows[worker.name].heartbeat_age_s <= self._limit and not is_stopped(worker.process.pid)
        ]

    def _stopped_for(self, worker: Worker, now: float) -> float:
        pid = worker.process.pid
        if not is_stopped(pid):
            self._stopped_since.pop(pid, None)
            return 0.0
        return now - self._stopped_since.setdefault(pid, now)


def by_suspicion(workers: Sequence[Worker], control: ControlBlock) -> list[tuple[Worker, str]]:
    """Those whose boot is overdue, likeliest culprit first, each with what it is at: stopped, at work, waiting."""
    rows = {row.name: row for row in control.snapshot()}

    def seen(worker: Worker) -> tuple[int, Worker, str]:
        phase = rows[worker.name].phase
        stopped = is_stopped(worker.process.pid)
        words = f"{worker.name} ({'stopped in ' if stopped else ''}{phase.name.lower()})"
        return (0 if stopped else 2 if phase in WAITS else 1), worker, words

    return [(worker, words) for _, worker, words in sorted(map(seen, workers), key=lambda found: found[0])]


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, or a debugger holds it."""
    return process_state(pid) in ("T", "t")


def process_state(pid: int) -> str:
    """State letter of a process (``T`` = stopped), or an empty string when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def request_stacks(worker: Worker) -> None:
    """Asks a worker to write the stacks of all its threads to its log; a stopped one is woken to do so."""
    send_signal(worker, STACK_SIGNAL)
    send_signal(worker, signal.SIGCONT)
