"""Shared blocks, descriptors, and what is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import resource
import signal
import time

import numpy as np
import pytest

from tests.transport.procs_transport import LAYOUT, parent_of_one, produce, report_inheritable
from transport import (
    ControlBlock,
    EventFd,
    Ring,
    SharedBlock,
    StartupHandshake,
    StopSignal,
    TransportError,
    WeightMailbox,
    message_pipe,
    process_exists,
    wait_any,
)


def test_block_is_zeroed_typed_and_bounded() -> None:
    block = SharedBlock.create(100, "test block")
    array = block.ndarray(np.float32, (5, 5))
    assert not array.any()
    array[4, 4] = 2
    assert block.ndarray(np.float32, 1, 96)[0] == 2
    for offset, shape in [(-4, 1), (4, (5, 5)), (100, 1)]:
        with pytest.raises(ValueError, match="does not fit"):
            block.ndarray(np.float32, shape, offset)
    with pytest.raises(ValueError, match="positive"):
        SharedBlock.create(0, "nothing")


def test_descriptors_are_closed_on_exec() -> None:
    ring = Ring.create(LAYOUT)
    reader, writer = message_pipe()
    parts = ring.parts()
    for fd in (parts.free.fileno(), parts.filled.fileno(), reader.fileno(), writer.fileno()):
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert not os.get_inheritable(fd)
    ring.close()
    reader.close()
    writer.close()


@pytest.mark.timeout(60)
def test_descriptors_stop_at_the_process_they_were_passed_to(spawn) -> None:
    ring = Ring.create(LAYOUT)
    reader, writer = message_pipe()
    spawn(report_inheritable, ring=ring, report=writer).join(30)
    assert reader.drain() == [[]]
    for thing in (ring, reader, writer):
        thing.close()


def test_prefault_takes_pages_and_keeps_contents() -> None:
    block = SharedBlock.create(1 << 20, "test block")
    array = block.ndarray(np.uint8, 1 << 20)
    array[7] = 3
    before = os.fstat(block._descriptor.fileno()).st_blocks
    block.prefault()
    assert os.fstat(block._descriptor.fileno()).st_blocks * 512 >= 1 << 20 > before * 512
    assert array[7] == 3


@pytest.mark.covers("S8")
def test_shortage_is_an_error_and_no_bus_error() -> None:
    block = SharedBlock.create(1 << 20, "test block")
    block.ndarray(np.uint8, 1)
    os.ftruncate(block._descriptor.fileno(), 4096)  # a touch beyond would be a SIGBUS
    with pytest.raises(TransportError, match=r"not enough memory for test block \(1048576 bytes\)"):
        block.prefault()
    with pytest.raises(TransportError, match=r"test block"):
        SharedBlock.create(1 << 62, "test block").ndarray(np.uint8, 1)


@pytest.mark.covers("S8")
def test_limit_on_open_files_is_named() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[EventFd] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with contextlib.suppress(TransportError):
            while True:
                held.append(EventFd())
        for make in (message_pipe, lambda: SharedBlock.create(8, "block"), lambda: Ring.create(LAYOUT)):
            with pytest.raises(TransportError, match="limit on open files"):
                make()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for event in held:
            event.close()


def test_nothing_is_pickled_but_into_a_new_process() -> None:
    for thing in (
        SharedBlock.create(8, "b"),
        EventFd(),
        StopSignal(),
        Ring.create(LAYOUT),
        message_pipe()[1],
    ):
        with pytest.raises(TransportError, match="only as an argument of its start"):
            pickle.dumps(thing)


def test_closed_things_say_so() -> None:
    event = EventFd(label="some event")
    event.close()
    event.close()
    with pytest.raises(TransportError, match="some event is closed"):
        event.post()
    block = SharedBlock.create(8, "b")
    array = block.ndarray(np.uint8, 8)
    block.close()
    array[0] = 1  # still mapped


@pytest.mark.covers("R5")
def test_no_descriptor_and_no_name_is_left(nothing_left) -> None:
    for _ in range(3):
        things = [
            Ring.create(LAYOUT),
            WeightMailbox.create(400, 4),
            ControlBlock.create(["a"]),
            StartupHandshake.create(["a"], ["a"]),
            *message_pipe(),
            StopSignal(),
        ]
        things[0].consumer(), things[0].producer()
        for thing in things:
            thing.close()
        del things
    Ring.create(LAYOUT).producer()  # collected without close


@pytest.mark.fault
@pytest.mark.covers("R5")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_is_left_of_a_worker(spawn, stop, how) -> None:
    names = set(os.listdir("/dev/shm"))
    ring = Ring.create(LAYOUT)
    process = spawn(produce, ring=ring, stop=stop)
    consumer = ring.consumer()
    assert consumer.wait(stop, 30)
    if how is None:
        stop.set()
    else:
        os.kill(process.pid, how)
    process.join(10)
    assert process.exitcode == (0 if how is None else -how)
    ring.close()
    assert not [name for name in set(os.listdir("/dev/shm")) - names if str(process.pid) in name]


@pytest.mark.fault
@pytest.mark.covers("R5", "S4")
@pytest.mark.timeout(60)
def test_workers_leave_with_a_killed_parent(spawn) -> None:
    reader, writer = message_pipe()
    parent = spawn(parent_of_one, report=writer)
    writer.close()
    assert wait_any([reader], None, 30)
    (worker,) = reader.drain()
    assert process_exists(worker)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    end = time.monotonic() + 5
    while process_exists(worker) and not is_zombie(worker):
        assert time.monotonic() < end, "the worker outlived its parent"
        time.sleep(0.02)
    reader.close()


def is_zombie(pid: int) -> bool:
    """An orphan whose new parent does not reap (containers without an init)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True
