"""A signal to everybody while workers are being born: it is for the parent, whatever the moment."""

from __future__ import annotations

import json
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
@pytest.mark.parametrize(
    ("signum", "after_s"),
    [(signal.SIGINT, 0.0), (signal.SIGINT, 0.2), (signal.SIGINT, 0.5), (signal.SIGTERM, 0.2)],
)
def test_a_signal_to_the_whole_group_at_boot_strikes_no_worker(
    tmp_path: Path, signum: signal.Signals, after_s: float
) -> None:
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
        os.killpg(process.pid, signum)  # as a terminal does, or `timeout`: everybody in the group
        assert process.wait(60) == 0
        assert b"killed by" not in os.read(leader, 1 << 16)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert not list((tmp_path / "run" / "async_errors").iterdir())
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["outcome"], record["reason"]) == ("interrupted", f"interrupted by {signum.name}")
