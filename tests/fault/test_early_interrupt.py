"""Ctrl-C while workers are being born: it is for the parent, whatever the moment."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.running import ROOT, options, word

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]


@pytest.mark.covers("S5")
@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5])
def test_ctrl_c_at_boot_strikes_no_worker(tmp_path: Path, after_s: float) -> None:
    words = [word(key, value) for key, value in options(logging__console="plain").items()]
    command = [sys.executable, str(ROOT / "train.py"), f"run_dir={tmp_path / 'run'}", *words]
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
    )
    os.close(follower)
    try:
        deadline = time.monotonic() + 60
        while not (
            tmp_path / "run" / "logs" / "learner-0.log"
        ).exists():  # its pipes are made just before its spawn
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(after_s)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground group
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert not list((tmp_path / "run" / "async_errors").iterdir())
