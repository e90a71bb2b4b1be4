"""torch.compile in a whole run: told, no hang, and nothing of the compiler's own processes is left."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.running import Run, options

#: Far less than compiling takes, far more than an update does.
HEARTBEAT_S = 4.0


@pytest.mark.slow
@pytest.mark.covers("S2")
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_compiling_belongs_to_the_boot_and_is_no_hang(tmp_path: Path) -> None:
    settings = options(
        algo__agent__compile=True, async__heartbeat_timeout_s=HEARTBEAT_S, async__boot_timeout_s=300
    )
    with Run(tmp_path / "run", settings) as run:
        assert run.finish(330) == 0, run.output[-3000:]
        assert "learner-0 compiling" in run.output
        assert "update compiled in " in run.output
        compiled_s = float(run.output.partition("update compiled in ")[2].split()[0])
        assert compiled_s > HEARTBEAT_S  # else this test would not see a hang
        deadline = time.monotonic() + 10.0
        while run.members():
            assert time.monotonic() < deadline, run.members()
            time.sleep(0.1)
