"""The first and last lines of every worker process.

:func:`run_worker` is the target of each spawn. It makes the process a good citizen (own process group,
leaves when its parent does, SIGTERM as a request), opens its log, runs the role, and turns whatever goes
wrong into a traceback in a file and one message to the supervisor.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from motrix_rl.logs import setup_worker_logging
from motrix_rl.runs import RunDirectory
from transport import Phase, set_parent_death_signal
from workers.faults import board_for
from workers.wiring import WorkerContext

log = logging.getLogger(__name__)

#: Exit code of a worker that failed; its traceback is in ``async_errors/``.
FAILED = 1

#: Signals that reach everybody in the parent's group: from a terminal, from `timeout`, from a job scheduler. The
#: parent blocks them around a spawn: a new worker inherits that, and cannot be struck before it has a group of its
#: own and has said what to do about them.
GROUP_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGTERM})


def run_worker(*, role: str, context: WorkerContext, wiring: Any) -> None:
    """Runs one worker until its role ends.

    Args:
        role: name of the module in ``workers`` whose ``run(context, wiring, board)`` is the work.
        context: what every worker gets.
        wiring: the role's own channels.
    """
    _join_process_tree(context)
    setup_worker_logging(context.name, Path(context.files.log), context.config.logging.level)
    board = board_for(context.control, context.name, context.incarnation)
    try:
        log.info("process %d, incarnation %d, cpus %s", os.getpid(), context.incarnation, _cpus())
        board.set_phase(Phase.IMPORTING)
        module = importlib.import_module(f"workers.{role}")
        module.run(context, wiring, board)
        board.set_phase(Phase.DONE)
    except BaseException as fault:  # noqa: BLE001 - whatever it was, it ends this process and is told
        _report(context, fault)
        _leave(FAILED)
    log.info("done")
    _leave(0)


def _join_process_tree(context: WorkerContext) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: context.stop.set())
    # Blocked since before this process existed; those that came meanwhile were the parent's to hear.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    set_parent_death_signal(context.parent_pid)


def _cpus() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


def _report(context: WorkerContext, fault: BaseException) -> None:
    """Writes the traceback down and tells the supervisor in one message."""
    text = traceback.format_exc()
    line = "".join(traceback.format_exception_only(fault)).strip().splitlines()[-1]
    log.error("%s\n%s", line, text)
    with contextlib.suppress(OSError):  # a full disk must not hide the fault itself
        RunDirectory(context.files.run_dir).write_error(context.name, text)
    message = {
        "kind": "error",
        "worker": context.name,
        "line": line,
        "traceback": text,
        "victim": getattr(fault, "victim", False),
        "final": getattr(fault, "final", False),
    }
    context.messages.send(message, timeout_s=2.0)


def _leave(code: int) -> None:
    """Ends the process without waiting for threads or finalisers of native libraries."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
