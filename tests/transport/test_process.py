"""Parent-death signal and torch's leftover files; imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from transport import TransportError, process_exists, set_parent_death_signal, sweep_torch_shm


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.covers("R5")
def test_sweep_removes_files_of_named_dead_processes_only(tmp_path) -> None:
    dead, other = dead_pid(), dead_pid()
    for name in (f"torch_{dead}_12_0", f"torch_{other}_1_0", f"torch_{os.getpid()}_1_0", "torch_x_1", "else"):
        (tmp_path / name).touch()
    assert [path.name for path in sweep_torch_shm([dead, os.getpid()], tmp_path)] == [f"torch_{dead}_12_0"]
    assert sweep_torch_shm([dead], tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 4


def test_wrong_parent_is_noticed() -> None:
    code = (
        "import os\n"
        "from transport import TransportError, set_parent_death_signal\n"
        "set_parent_death_signal(os.getppid())\n"
        "try:\n    set_parent_death_signal(os.getpid())\n"
        "except TransportError as error:\n    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert "ended before this worker had started" in result.stdout
    assert process_exists(os.getpid())
    assert issubclass(TransportError, Exception)
    assert callable(set_parent_death_signal)


def test_importing_transport_imports_no_torch() -> None:
    code = (
        "import sys, transport, transport.bench\n"
        "layout = transport.SlotLayout.for_shard(1, 1, 1)\n"
        "transport.Ring.create(layout, storage=transport.DeviceStorage('cuda:0'))\n"
        "print('torch' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout.strip() == "False"
