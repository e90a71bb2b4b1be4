"""What counts as left behind: files that nobody alive uses."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.running import in_use

HOLD = {
    "open": "file = open({path!r})",
    "mapped": "import mmap; file = mmap.mmap(os.open({path!r}, os.O_RDWR), 0); os.closerange(3, 64)",
}


@pytest.mark.parametrize("how", HOLD)
def test_a_file_is_in_use_while_another_process_has_it(how: str) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as named:
        named.write(bytes(mmap.PAGESIZE))
        named.flush()
        path = Path(named.name)
        code = f"import os, sys; {HOLD[how].format(path=named.name)}; print(flush=True); sys.stdin.read()"
        holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        copy = os.dup(named.fileno())
        named.file.close()
        assert in_use(str(path))  # this process still has it
        os.close(copy)
        assert in_use(str(path))  # and so has the other one
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
        assert not in_use(str(path))


def test_a_semaphore_is_in_use_while_its_process_lives() -> None:
    code = (
        "import multiprocessing, sys; lock = multiprocessing.get_context('spawn').Lock();"
        " print(lock._semlock.name, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    path = "/dev/shm/sem." + holder.stdout.readline().decode().strip().removeprefix("/")
    assert Path(path).exists()
    assert in_use(path)  # though it is mapped under another name
    holder.stdin.close()
    holder.wait()
    holder.stdout.close()
    assert not in_use(path)
