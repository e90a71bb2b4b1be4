"""Child processes that never outlive their test, and proof that a test left nothing behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from transport import StopSignal

Spawn = Callable[..., BaseProcess]


@pytest.fixture
def spawn(nothing_left: None) -> Iterator[Spawn]:
    """Starts a spawned process with keyword arguments; what is left of it at the end is killed."""
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []

    def start(target: Callable[..., None], **kwargs: Any) -> BaseProcess:
        process = context.Process(target=target, kwargs=kwargs)
        process.start()
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.join(10)
        process.close()
    processes.clear()


@pytest.fixture
def stop(nothing_left: None) -> Iterator[StopSignal]:
    signal = StopSignal()
    yield signal
    signal.set()
    signal.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails the test that leaves a name in /dev/shm, a child process or a descriptor behind."""
    # multiprocessing opens one descriptor for good with its first child.
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()
    gc.collect()
    names, files = set(os.listdir("/dev/shm")), open_files()
    yield
    gc.collect()
    ours = [name for name in set(os.listdir("/dev/shm")) - names if _is_mine(name)]
    assert not ours
    assert multiprocessing.active_children() == []
    assert open_files() <= files, os.listdir("/proc/self/fd")


def _is_mine(name: str) -> bool:
    # Other programs on the machine make names there meanwhile; maps tell whether this process did.
    return name in Path("/proc/self/maps").read_text() or str(os.getpid()) in name


def tokens(fd: int) -> int:
    """What an eventfd holds, without taking it."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("eventfd-count:"):
            return int(line.split()[1], 16)
    raise AssertionError(f"{fd} is no eventfd")


@pytest.fixture(name="tokens")
def _tokens() -> Callable[[int], int]:
    return tokens
