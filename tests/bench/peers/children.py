"""One program in a session of its own: pinned, its output in a file, and nothing of it left in the end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from tests.e2e.running import kill, living_in

#: Variables of the caller that would change what a trainer does by default.
_NOT_HANDED_ON = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "XLA_FLAGS",
)


class Child:
    """Starts the program; leaving the context ends it and all that it started.

    Args:
        command: words.
        log: file that its output is appended to.
        cpus: CPUs that it and its children may use; empty = as the caller.
        where: its working directory.
        variables: added to the environment.
        grace_s: seconds that it has to end by itself after SIGTERM.
    """

    def __init__(
        self,
        command: list[str],
        log: Path,
        *,
        cpus: Collection[int] = (),
        where: Path | None = None,
        variables: Mapping[str, str] | None = None,
        grace_s: float = 5.0,
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_HANDED_ON}
        self._grace_s = grace_s
        with open(log, "ab") as sink:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=where,
                env=environment | dict(variables or {}),
                start_new_session=True,
                preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,
            )
        self.session = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self.wait(self._grace_s)
        # Workers of a trainer may be in process groups of their own, but not in other sessions.
        while members := self.members():
            for pid in members:
                kill(pid)
            self._process.poll()
            time.sleep(0.02)
        self._process.wait()

    def wait(self, timeout_s: float) -> int | None:
        """Waits for its end; returns the exit code, or None where it still runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def members(self) -> list[int]:
        """Living processes of its session."""
        return living_in(self.session)


def last_words(log: Path) -> str:
    """The last line that a program said."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
