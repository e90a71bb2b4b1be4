"""Eventfds, the stop level, and the wait."""

from __future__ import annotations

import threading
import time

import pytest

from transport import Deadline, EventFd, StopSignal, TransportError, wait_any


def test_semaphore_gives_one_token_at_a_time() -> None:
    event = EventFd(semaphore=True)
    assert event.take() == 0
    event.post(3)
    event.post(0)
    assert event.take() == 1
    assert event.drain() == 2
    assert event.drain() == 0


def test_counter_gives_all_at_once() -> None:
    event = EventFd()
    event.post()
    event.post(4)
    assert event.take() == 5
    assert event.take() == 0


def test_stop_is_a_level() -> None:
    stop = StopSignal()
    assert not stop.is_set()
    stop.set()
    stop.set()
    for _ in range(3):
        assert stop.is_set()
        assert wait_any([], stop, 20) == []


@pytest.mark.timeout(20)
def test_wait_returns_what_is_ready() -> None:
    first, second, stop = EventFd(), EventFd(), StopSignal()
    assert wait_any([first, second], stop, 0) == []
    second.post()
    assert wait_any([first, second.fileno()], stop) == [second.fileno()]
    stop.set()
    assert wait_any([first, second], stop) == [second.fileno()]


@pytest.mark.covers("R3")
@pytest.mark.timeout(20)
def test_waiting_is_idle_and_stop_ends_it() -> None:
    event, stop = EventFd(), StopSignal()
    begin, cpu = time.monotonic(), time.thread_time()
    assert wait_any([event], stop, 0.5) == []
    assert time.monotonic() - begin >= 0.5
    assert time.thread_time() - cpu < 0.01
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    assert wait_any([event], stop) == []
    timer.join()


def test_closed_descriptor_is_an_error() -> None:
    event = EventFd()
    fd = event.fileno()
    event.close()
    with pytest.raises(TransportError, match="closed"):
        wait_any([fd], None, 1)


def test_deadline() -> None:
    assert Deadline(None).left_s() is None
    assert not Deadline(None).over
    assert Deadline(0).over
    assert 9 < (Deadline(10).left_s() or 0) <= 10
