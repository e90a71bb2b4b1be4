"""`run.json`: what a run is, where it ran and how it ended. Written by the supervisor, read by anybody."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.runs import atomic, processes, provenance
from motrix_rl.runs.plain import to_plain

FORMAT = 1
Outcome = Literal["running", "finished", "interrupted", "failed"]
OUTCOMES: tuple[str, ...] = ("running", "finished", "interrupted", "failed")
# What belongs to one life of a run; moved to `history` when the run is resumed in its directory.
_PER_LIFE = ("argv", "versions", "git", "machine", "topology", "process", "pid", "started_at", "started_unix",
             "ended_at", "outcome", "reason")  # fmt: skip

# The checkpoints do not depend on it: what a run was can be lost without losing what it has learnt.
_MEND = "; where it cannot be mended, replace its content by {}"


class RunRecord:
    """The `run.json` of one run directory.

    One writer: the process that owns the run. Every write replaces the file as a whole, so that readers
    (`logs -f`, a person's script) never see a part of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """The whole record; an empty one where the file is missing.

        Raises:
            UsageError: The file is there and is not a run record.
        """
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except NotADirectoryError as error:
            file = next(place for place in self.path.parents if place.is_file())
            raise UsageError(f"{file} is a file, not a run directory") from error
        except (ValueError, OSError) as error:
            raise UsageError(f"{self.path} cannot be read as a run record: {error}{_MEND}") from error
        if not isinstance(data, dict):
            raise UsageError(f"{self.path} is not a run record{_MEND}")
        return data

    def update(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Merges `fields` into the record and writes it; numbers that are not finite become null.

        Raises:
            MotrixError: The disk refused; the record before it is untouched.
        """
        data = {**self.read(), **fields}
        text = json.dumps(to_plain(data, str), indent=2, allow_nan=False) + "\n"
        try:
            atomic.replace_file(self.path, text.encode())
        except OSError as error:
            raise MotrixError(f"{self.path} cannot be written: {error.strerror or error}") from error
        return data

    def begin(self, *, machine: Mapping[str, Any] | None = None, topology: Mapping[str, Any] | None = None,
              extra: Mapping[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
        """Writes the start of one life of the run; the life before it, if any, goes to `history`.

        Args:
            machine: Description of the machine, a short one of our own when None.
            topology: Who runs where, as plain data.
            extra: More fields of the caller's (`resumed_from`, ...).
        """
        before = self.read()
        history = list(before.get("history", []))
        if "outcome" in before:
            history.append({key: before[key] for key in _PER_LIFE if key in before})
        host, pid, ticks = processes.own_identity()
        return self.update(
            {
                "argv": sys.argv,
                "versions": provenance.versions(),
                "git": provenance.git_state(),
                "machine": dict(machine) if machine is not None else provenance.machine_summary(),
                "topology": dict(topology) if topology is not None else None,
                "pid": os.getpid(),
                "process": {"host": host, "pid": pid, "start_ticks": ticks},
                "started_at": _now(),
                "started_unix": time.time(),
                "ended_at": None,
                "outcome": "running",
                "reason": None,
                "history": history,
                **(extra or {}),
            }
        )

    def finish(self, outcome: Outcome, reason: str | None = None, **extra: Any) -> None:
        """Writes how this life of the run ended."""
        assert outcome in OUTCOMES, outcome
        assert outcome != "running"
        self.update({**extra, "outcome": outcome, "reason": reason, "ended_at": _now()})

    def is_running(self) -> bool:
        """Whether the run goes on: it says so, and its process is not known to be gone."""
        return self.runner() is not None

    def runner(self) -> tuple[str, int] | None:
        """Host and process of a run that goes on; None where `is_running` is false."""
        data = self.read()
        if data.get("outcome") != "running":
            return None
        owner = data.get("process") or {}
        host, pid = str(owner.get("host")), int(owner.get("pid") or 0)
        alive = processes.is_alive(host, pid, int(owner.get("start_ticks") or 0) or None)
        return None if alive is False else (host, pid)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")
