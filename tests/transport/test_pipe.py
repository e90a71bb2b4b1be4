"""Message pipes: whole messages or none, and nobody blocks."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.transport.procs_transport import send_many
from transport import TransportError, message_pipe, wait_any


@pytest.fixture
def pipe():
    reader, writer = message_pipe()
    yield reader, writer
    reader.close()
    writer.close()


def test_messages_arrive_in_order_then_the_end(pipe) -> None:
    reader, writer = pipe
    messages = [{"a": 1}, "text", [1.5, None], b"\0" * 1000]
    assert all(writer.send(message) for message in messages)
    assert wait_any([reader], None, 1) == [reader.fileno()]
    assert reader.drain() == messages
    assert reader.drain() == []
    assert not reader.closed
    writer.close()
    assert reader.drain() == []
    assert reader.closed


@pytest.mark.covers("S6")
@pytest.mark.timeout(20)
def test_full_pipe_drops_at_once_and_never_tears(pipe) -> None:
    reader, writer = pipe
    begin = time.monotonic()
    sent = [number for number in range(1000) if writer.send((number, b"x" * 5000))]
    assert time.monotonic() - begin < 2
    assert 0 < len(sent) < 1000
    assert writer.dropped == 1000 - len(sent)
    received = []
    while writer.pending or wait_any([reader], None, 0):
        received += reader.drain()
        writer.flush()
    assert [number for number, _ in received] == sent
    assert all(body == b"x" * 5000 for _, body in received)
    assert writer.send("again")
    assert reader.drain() == ["again"]


@pytest.mark.covers("S6")
@pytest.mark.timeout(20)
def test_timeout_is_kept(pipe) -> None:
    _, writer = pipe
    while writer.send(b"x" * 1000):
        pass
    begin = time.monotonic()
    assert not writer.send("late", 0.3)
    assert 0.3 <= time.monotonic() - begin < 2


def test_message_larger_than_the_pipe_goes_in_parts(pipe) -> None:
    reader, writer = pipe
    large = os.urandom(1 << 20)
    assert writer.send(large)
    assert writer.pending > 0
    received = []
    while not received:
        received += reader.drain()
        writer.flush()
    assert received == [large]
    assert writer.flush()


@pytest.mark.covers("S6")
@pytest.mark.timeout(20)
def test_dead_reader_closes_the_writer(pipe) -> None:
    reader, writer = pipe
    writer.send("unread")
    reader.close()
    assert not writer.send("x", 5.0)
    assert writer.closed
    assert not writer.send("y")
    assert not writer.flush()
    assert writer.dropped == 2


@pytest.mark.covers("S6")
@pytest.mark.timeout(60)
def test_process_with_a_full_pipe_ends_by_itself(spawn) -> None:
    reader, writer = message_pipe()
    process = spawn(send_many, writer=writer, count=20_000, size=300)
    writer.close()
    process.join(30)
    assert process.exitcode == 0
    received = reader.drain()
    assert [number for number, _ in received] == sorted(number for number, _ in received)
    assert received
    assert reader.closed
    reader.close()


@pytest.mark.fault
@pytest.mark.covers("S6")
@pytest.mark.timeout(60)
def test_killed_writer_leaves_whole_messages(spawn) -> None:
    for delay in (0.0, 0.01, 0.03):
        reader, writer = message_pipe()
        process = spawn(send_many, writer=writer, count=10_000_000, size=30_000)
        writer.close()
        assert wait_any([reader], None, 30)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        messages = []
        while not reader.closed:
            messages += reader.drain()
        assert all(body == b"x" * 30_000 for _, body in messages)
        reader.close()


def test_foreign_bytes_are_refused(pipe) -> None:
    reader, writer = pipe
    os.write(writer.fileno(), b"\xff" * 64)
    with pytest.raises(TransportError, match="something else"):
        reader.drain()
