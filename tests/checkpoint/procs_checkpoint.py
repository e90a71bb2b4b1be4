"""A process that has torch and forks savers for the tests to kill; each import of torch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from motrix_rl.checkpoint import CheckpointStore

# What a save asks the system for; a saver may be ended before each of these.
_EVENTS = (
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.symlink",
    "os.scandir",
    "shutil.rmtree",
)


def state(number: int) -> dict[str, Any]:
    """A state that can be told from another one."""
    return {"number": number, "weights": torch.full((2000,), float(number))}


def save(store: CheckpointStore, step: int, number: int) -> None:
    """Saves two ranks' files."""
    staging = store.stage(step)
    for rank in range(2):
        store.save_file(staging, f"rank{rank}.pt", state(number))
    store.commit(step, {"number": number}, ["rank0.pt", "rank1.pt"])


def save_for_ever(directory: Path, first: int) -> None:
    """Saves and acknowledges; every step twice, so that checkpoints are displaced too."""
    store = CheckpointStore(directory, keep_last=2)
    number = first
    while True:
        save(store, number // 2, number)
        os.write(1, b"%d\n" % number)
        number += 1


def save_up_to(directory: Path, step: int, number: int, events: int) -> None:
    """Saves once, and ends without a word before the given system request."""
    left = events

    def hook(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _EVENTS:
            left -= 1
            if left == 0:
                os._exit(9)

    store = CheckpointStore(directory, keep_last=1)
    sys.addaudithook(hook)
    save(store, step, number)
    os._exit(0)


def _forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(3)
    return pid


def main() -> None:
    """Serves `loop DIR FIRST` and `upto DIR STEP NUMBER EVENTS`: answers the pid, then the exit code."""
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        what, directory, *numbers = line.split()
        arguments = [int(number) for number in numbers]
        work = {"loop": save_for_ever, "upto": save_up_to}[what]
        pid = _forked(
            lambda work=work, directory=directory, arguments=arguments: work(Path(directory), *arguments)
        )
        print(f"pid {pid}", flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(f"end {code}", flush=True)


if __name__ == "__main__":
    main()
