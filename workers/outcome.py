"""How a run ended, and the lines that stay on the terminal."""

from __future__ import annotations

import errno
import os
import select
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from motrix_rl.console.figures import number
from motrix_rl.runs import RunDirectory
from transport import StopReason, TransportError

#: Seconds that the last lines wait for a terminal that takes nothing.
SAY_S = 2.0

EXIT_FINISHED = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED_TWICE = 130

OutcomeKind = Literal["running", "finished", "interrupted", "failed"]

STOP_REASONS = {
    "finished": StopReason.FINISHED,
    "interrupted": StopReason.INTERRUPTED,
    "failed": StopReason.WORKER_DIED,
}


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        kind: finished, interrupted or failed.
        reason: one line; empty when finished.
        culprit: the worker that failed, if one did.
    """

    kind: OutcomeKind = "running"
    reason: str = ""
    culprit: str | None = None

    @property
    def stop_reason(self) -> StopReason:
        """What workers are told when this ends the run."""
        return STOP_REASONS[self.kind]

    @property
    def exit_code(self) -> int:
        """Of the command; a run that was stopped on request has ended well."""
        return EXIT_FAILED if self.kind == "failed" else EXIT_FINISHED


def closing_lines(outcome: Outcome, directory: RunDirectory, summary: dict[str, Any]) -> list[str]:
    """What stays on the terminal: how it ended, where everything is, and what to do next."""
    where = shown(directory.path)
    done = f"generation {summary['generation']}, {summary['updates']} updates, {summary['seconds']:.0f} s"
    best = summary["best_eval"]
    lines: list[str] = []
    if outcome.kind == "failed":
        lines.append(f"run failed: {outcome.reason}")
        if outcome.culprit is not None:
            lines.append(f"  log:       {shown(directory.log_path(outcome.culprit))}")
            lines.append(f"  traceback: {shown(directory.error_path(outcome.culprit))}")
    elif outcome.kind == "interrupted":
        saved = any(directory.checkpoints.glob(f"step_{summary['generation']:09d}"))
        lines.append(f"{outcome.reason}; {'saved' if saved else 'nothing saved'} at {done}")
    else:
        lines.append(f"finished: {done}")
    if best is not None:
        lines.append(f"  best evaluation: return {number(best)}")
    lines.append(f"  run: {where}")
    if outcome.kind == "finished":
        lines.append(f"  evaluate it: motrix-rl eval {shlex.quote(where)}")
    elif any(directory.checkpoints.glob("step_*")):
        lines.append(f"  go on with it: {train_command()} {shlex.quote(f'resume={where}')}")
    return lines


def say(lines: Iterable[str]) -> None:
    """Prints the last lines of a run. A terminal that nobody reads delays its end by a moment, one that is gone
    not at all, and neither changes the exit code."""
    poller = select.poll()
    poller.register(1, select.POLLOUT)
    deadline = time.monotonic() + SAY_S
    for line in lines:
        # A pipe that is ready takes PIPE_BUF bytes without waiting.
        data = f"{line}\n".encode(errors="replace")[: select.PIPE_BUF]
        try:
            ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready or not ready[0][1] & select.POLLOUT:
                return
            os.write(1, data)
        except OSError:
            return


def train_command() -> str:
    """How a training is started here: as this one was, by `train.py` where that lies or by the installed command."""
    script = Path(sys.argv[0])
    if script.name == "train.py":
        return f"python {shlex.quote(shown(script))}"
    return "motrix-rl train"


def shown(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def explained(fault: OSError | TransportError) -> str:
    """What the system refused, and what to do about it."""
    if isinstance(fault, OSError) and fault.errno in (errno.EMFILE, errno.ENFILE):
        return "the limit on open files is reached; raise it (`ulimit -n 4096`)"
    if isinstance(fault, OSError) and fault.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"{fault.strerror}; end other processes, or raise the limit on processes (`ulimit -u`)"
    if isinstance(fault, OSError) and fault.filename is not None:
        return f"{fault.filename}: {fault.strerror}"
    return str(fault)
