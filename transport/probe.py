"""Whether CUDA memory can be shared between processes here: `python -m transport.probe cuda:0`.

A container may forbid it, and an allocator setting may rule it out; both show only when it is tried. It is tried in
processes of their own, so that whoever asks needs no CUDA context.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
PROBE_TIMEOUT_S = 120.0
_VALUE = 7


def why_no_ipc(device: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why memory of ``device`` cannot be shared over CUDA IPC, in one line, or None where it can."""
    for name in ALLOCATOR_VARIABLES:
        if "expandable_segments:true" in environment.get(name, "").lower().replace(" ", ""):
            return f"{name} sets expandable_segments, whose memory CUDA IPC cannot share; unset it"
    command = [sys.executable, "-m", "transport.probe", device]
    try:
        found = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            env=dict(environment),
        )
    except subprocess.TimeoutExpired:
        return f"a try to share memory of {device} over CUDA IPC took more than {PROBE_TIMEOUT_S:g} s"
    if found.returncode == 0:
        return None
    lines = found.stderr.strip().splitlines() or [f"exit code {found.returncode}"]
    return f"memory of {device} cannot be shared over CUDA IPC here: {lines[-1].strip()}"


def _read(memory: Any, answer: Connection) -> None:
    answer.send(int(memory.sum().item()))


def main(device: str) -> int:
    """Shares a few bytes with a child, which says what it sees; returns the exit code."""
    import torch

    memory: Any = torch.full((1,), _VALUE, dtype=torch.int64, device=device)
    context = multiprocessing.get_context("spawn")
    import_module("torch.multiprocessing")  # registers how tensors are passed on

    mine, theirs = context.Pipe()
    child = context.Process(target=_read, args=(memory, theirs))
    child.start()
    theirs.close()
    try:
        seen = mine.recv() if mine.poll(PROBE_TIMEOUT_S / 2) else None
    except EOFError:
        seen = None
    child.join()
    if seen != _VALUE:
        print("the other process could not read it", file=sys.stderr)
    return 0 if seen == _VALUE else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
