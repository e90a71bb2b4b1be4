"""The worker processes as the supervisor holds them: spawned, heard, reaped, ended.

All of it runs in the supervisor's main thread: the parent-death signal of a worker is bound to the thread
that spawned it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motrix_rl.logs import OutputPump
from topology import bound_spawn
from transport import PipeReader, wait_any
from workers.entry import GROUP_SIGNALS, run_worker
from workers.wiring import WorkerContext

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Placement:
    """Where a worker runs, as the topology has it."""

    cpus: tuple[int, ...]
    numa_node: int | None
    threads: int


@dataclass
class Worker:
    """One life of one worker.

    Attributes:
        name: its name in logs and control block.
        role: collector, learner or evaluator.
        process: the process.
        messages: reading end of its pipe.
        started_at: monotonic seconds of the spawn.
        incarnation: life of the worker, from 0.
        error: the message it sent before it failed, if it could.
        exit_code: None while it runs; negative signal number if a signal ended it.
    """

    name: str
    role: str
    process: Any
    messages: PipeReader
    started_at: float
    incarnation: int
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    inbox: list[dict[str, Any]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Not reaped yet."""
        return self.exit_code is None

    @property
    def is_victim(self) -> bool:
        """It says itself that it failed because another worker was gone."""
        return self.error is not None and bool(self.error.get("victim"))

    @property
    def is_final(self) -> bool:
        """It says itself that a start from the last checkpoint would only bring the same fault again."""
        return self.error is not None and bool(self.error.get("final"))

    def cause(self) -> str:
        """How it ended, in words."""
        assert self.exit_code is not None
        if self.error is not None:
            return str(self.error["line"])
        if self.exit_code < 0:
            try:
                return f"killed by {signal.Signals(-self.exit_code).name}"
            except ValueError:
                return f"killed by signal {-self.exit_code}"
        return f"exited with code {self.exit_code}"


class Fleet:
    """Spawns workers and keeps hold of them until every one has been reaped.

    Args:
        output: reads what workers print and writes it into their logs.
        log_path: log of a worker, by name.
    """

    def __init__(self, output: OutputPump, log_path: Callable[[str], Path]) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._output = output
        self._log_path = log_path
        self.workers: dict[str, Worker] = {}
        self.lost_pids: list[int] = []

    def start(
        self, role: str, context: WorkerContext, wiring: Any, placement: Placement, messages: PipeReader
    ) -> Worker:
        """Spawns one worker, bound to its CPUs, its output going to its log."""
        process = self._spawn.Process(
            target=run_worker,
            name=context.name,
            kwargs={"role": role, "context": context, "wiring": wiring},
            daemon=False,
        )
        with (
            self._output.add(context.name, self._log_path(context.name)).redirected(),
            bound_spawn(placement.cpus, placement.numa_node, placement.threads),
            group_signals_blocked(),  # innermost: starting multiprocessing's tracker unblocks them
        ):
            process.start()
        context.messages.close()  # the child has its own copy; ours would keep the pipe open after its death
        worker = Worker(context.name, role, process, messages, time.monotonic(), context.incarnation)
        self.workers[context.name] = worker
        return worker

    def poll(self, timeout_s: float, extra_fds: list[int]) -> None:
        """Waits for output, a message, an exit or one of ``extra_fds``; reads all that is there."""
        fds = [*extra_fds, *self._output.filenos()]
        for worker in self.living():
            fds.append(worker.process.sentinel)
            if not worker.messages.closed:
                fds.append(worker.messages.fileno())
        wait_any(fds, timeout_s=timeout_s)
        self._output.drain()
        for worker in self.living():
            self._hear(worker)

    def _hear(self, worker: Worker) -> None:
        for message in worker.messages.drain():
            if message.get("kind") == "error":
                worker.error = message
            else:
                worker.inbox.append(message)

    def take_messages(self) -> list[tuple[Worker, dict[str, Any]]]:
        """Messages that arrived, oldest first for each worker."""
        taken = [(worker, message) for worker in self.workers.values() for message in worker.inbox]
        for worker in self.workers.values():
            worker.inbox.clear()
        return taken

    def reap(self) -> list[Worker]:
        """Workers that have ended since the last call, each with its last messages read."""
        ended: list[Worker] = []
        for worker in self.living():
            worker.process.join(0)
            if worker.process.exitcode is None:
                continue
            self._output.drain()
            self._hear(worker)
            worker.exit_code = worker.process.exitcode
            worker.messages.close()
            self.lost_pids.append(worker.process.pid)
            worker.process.close()
            ended.append(worker)
        return ended

    def living(self) -> list[Worker]:
        """Workers not yet reaped."""
        return [worker for worker in self.workers.values() if worker.alive]

    def signal_all(self, signum: int) -> None:
        """Sends a signal to every living worker; SIGCONT first, since a stopped one hears no SIGTERM."""
        for worker in self.living():
            send_signal(worker, signal.SIGCONT)
            send_signal(worker, signum)

    def wait_gone(self, deadline: float, tick: Callable[[float], None]) -> bool:
        """Calls ``tick`` until all are reaped (True) or the deadline (monotonic seconds) has passed."""
        while self.living():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            tick(min(left, 0.2))
        return True

    def kill_all(self) -> None:
        """Ends everything now."""
        self.signal_all(signal.SIGKILL)
        for worker in self.living():
            worker.process.join(5.0)
        self.reap()


@contextmanager
def group_signals_blocked() -> Iterator[None]:
    """While it lasts, a Ctrl-C and the like wait: they are for the parent, not for a worker being born."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send_signal(worker: Worker, signum: int) -> None:
    """Sends a signal to a worker that may be gone already; only we reap it, so the pid is its own."""
    pid = worker.process.pid
    if pid is not None:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            log.debug("%s is gone already", worker.name)
