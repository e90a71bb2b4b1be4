"""A terminal that nobody reads, or that is gone, holds up no run and no end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import ROOT, Run, options
from tests.fault.test_kill import ENDLESS, WITHIN_S

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


class PipedRun(Run):
    """A run whose output goes into a pipe of one page instead of a file."""

    def __init__(self, directory: Path, settings: dict[str, Any], *, full: bool) -> None:
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        if full:
            os.write(writer, b"x" * 4096)
        self._writer = writer
        super().__init__(directory, settings)
        os.close(writer)

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdout=self._writer,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )


@pytest.mark.covers("S6", "S5")
@pytest.mark.parametrize("fault", ["nothing", "raise"])
def test_a_reader_that_is_gone_changes_neither_the_run_nor_its_exit_code(fault: str, tmp_path: Path) -> None:
    settings = options(env__victim="collector-0", env__at_step=fault, env__step=30)
    with PipedRun(tmp_path / "run", settings, full=False) as run:
        os.read(run.reader, 20)
        os.close(run.reader)
        assert run.finish(90) == (0 if fault == "nothing" else 1)
        run.assert_nothing_left(WITHIN_S)
        assert run.record()["outcome"] == ("finished" if fault == "nothing" else "failed")


@pytest.mark.covers("S6", "S5")
def test_a_reader_that_is_stuck_holds_up_neither_the_run_nor_its_end(tmp_path: Path) -> None:
    with PipedRun(tmp_path / "run", ENDLESS, full=True) as run:
        run.until_generation(20, 30)
        run.send("parent", signal.SIGINT)
        assert run.finish(20) == 0
        run.assert_nothing_left(WITHIN_S)
        os.close(run.reader)
