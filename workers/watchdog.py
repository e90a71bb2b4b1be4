"""Which worker is hung."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from transport import ControlBlock, Phase
from workers.fleet import Worker, send_signal

#: A worker in one of these waits for others, or does work of which nobody can say how long it takes.
UNLIMITED = frozenset(
    {Phase.WAITING, Phase.COLLECTIVE, Phase.READY, Phase.SAVING, Phase.STOPPING, Phase.DONE}
)
BOOTING = frozenset({Phase.STARTING, Phase.IMPORTING, Phase.BUILDING})

#: Workers write their stacks to their log when they get this signal.
STACKS_SIGNAL = signal.SIGUSR1


class Watchdog:
    """Finds the culprit: the worker that is stopped, or that works without a heartbeat.

    Waiting for others has no limit: whoever waits is a victim, not the culprit.

    Args:
        heartbeat_timeout_s: limit for a phase of work, and for a stopped process.
        boot_timeout_s: limit for the boot of a worker that was started again.
    """

    def __init__(self, heartbeat_timeout_s: float, boot_timeout_s: float) -> None:
        self._limit = heartbeat_timeout_s
        self._boot_limit = boot_timeout_s
        self._stopped_since: dict[int, float] = {}

    def hung(self, workers: list[Worker], control: ControlBlock) -> tuple[Worker, str] | None:
        """The first hung worker and why it counts as hung, or None."""
        now = time.monotonic()
        rows = {row.name: row for row in control.snapshot()}
        for worker in workers:
            row = rows[worker.name]
            if self._stopped_for(worker, now) > self._limit:
                return worker, f"stopped for more than {self._limit:g} s"
            if row.phase in UNLIMITED:
                continue
            limit = self._boot_limit if row.phase in BOOTING else self._limit
            since = max(worker.started_at, row.heartbeat_ns / 1e9)
            if now - since > limit and worker.process.pid in self._stopped_since:
                phase = row.phase.name.lower()
                return worker, f"stopped in phase {phase}, no progress for more than {limit:g} s"
            if now - since > limit:
                return worker, f"no progress in phase {row.phase.name.lower()} for more than {limit:g} s"
        return None

    def _stopped_for(self, worker: Worker, now: float) -> float:
        pid = worker.process.pid
        if process_state(pid) not in ("T", "t"):
            self._stopped_since.pop(pid, None)
            return 0.0
        return now - self._stopped_since.setdefault(pid, now)


def process_state(pid: int) -> str:
    """State letter of a process (``T`` = stopped), or an empty string when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def request_stacks(worker: Worker) -> None:
    """Asks a worker to write the stacks of all its threads to its log; a stopped one is woken to do so."""
    send_signal(worker, STACKS_SIGNAL)
    send_signal(worker, signal.SIGCONT)
