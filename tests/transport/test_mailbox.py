"""The weight mailbox: newest version, never a mixture, nobody waits."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from tests.transport.procs_transport import WEIGHTS, publish_and_die, publish_for, read_for, weights
from transport import Deadline, StopSignal, TransportError, WeightMailbox, message_pipe, wait_any
from transport.mailbox import MAX_READ_TRIES, WeightReader


def mailbox(doorbells: int = 0) -> WeightMailbox:
    return WeightMailbox.create(WEIGHTS * 4, doorbells)


def test_reader_gets_the_newest_version_once() -> None:
    box = mailbox()
    writer, reader = box.writer(), box.reader()
    assert reader.poll() is None
    for version in (0, 1, 2, 7):
        writer.publish(version, weights(version))
    assert reader.poll() == 7
    assert reader.poll() is None
    assert np.array_equal(reader.payload, weights(7))
    assert box.writer().version == 7


def test_odd_payload_sizes_are_padded() -> None:
    box = WeightMailbox.create(4 * 5)
    box.writer().publish(1, np.arange(5, dtype=np.float32))
    reader = box.reader()
    assert reader.poll() == 1
    assert reader.payload.tolist() == [0, 1, 2, 3, 4]


def test_what_a_writer_must_not_do_is_refused() -> None:
    box = mailbox()
    writer = box.writer()
    writer.publish(3, weights(3))
    for version in (3, 2):
        with pytest.raises(ValueError, match="must grow"):
            writer.publish(version, weights(version))
    with pytest.raises(ValueError, match="expected float32"):
        writer.publish(4, weights(4)[1:])
    with pytest.raises(ValueError, match="float32"):
        writer.publish(4, weights(4).astype(np.float64))
    with pytest.raises(ValueError, match="float32"):
        WeightMailbox.create(5)


@pytest.mark.covers("R4")
@pytest.mark.timeout(60)
def test_no_mixture_at_full_speed_and_versions_grow(spawn, stop) -> None:
    box = mailbox()
    pipes = [message_pipe() for _ in range(4)]
    kwargs = [{}, {}, {"slow": True}]
    ready = [StopSignal() for _ in kwargs]
    for (_, report), boots, extra in zip(pipes[1:], ready, kwargs, strict=True):
        spawn(read_for, mailbox=box.for_reader(), stop=stop, ready=boots, report=report, **extra)
    for boots in ready:
        assert wait_any([boots], None, 30)
        boots.close()
    spawn(publish_for, mailbox=box, stop=stop, report=pipes[0][1])
    own, deadline = box.reader(), Deadline(40)
    while own.version < 2000 and not deadline.over:
        own.poll()
        time.sleep(0.01)
    stop.set()
    for _, report in pipes:
        report.close()
    results = []
    for reader, _ in pipes:
        assert wait_any([reader], None, 20)
        time.sleep(0.05)
        results += reader.drain()
        reader.close()
    print(results)
    (published, _slowest), *readers = results
    assert published >= 2000
    for result in readers:
        assert not isinstance(result, str), result
        count, last, _torn = result
        assert last <= published
    for count, _last, _torn in readers[:2]:
        assert count > 5
    assert readers[2][2] > 0, "the slow reader was never overtaken: the test shows nothing"
    box.close()


@pytest.mark.covers("R4")
def test_torn_copies_are_counted_and_the_old_payload_stays() -> None:
    box = mailbox()
    writer = box.writer()
    version = 10

    class Overtaken(WeightReader):
        def _load(self, index: int) -> None:
            nonlocal version
            self._spare[:100] = self._payloads[index, :100]
            for _ in range(3):
                version += 1
                writer.publish(version, weights(version))
            self._spare[100:] = self._payloads[index, 100:]

    reader = Overtaken(box, None)
    writer.publish(10, weights(10))
    assert WeightReader.poll(reader) is None
    assert reader.torn_reads == MAX_READ_TRIES
    assert reader.version == -1
    assert not reader.payload.any()
    plain = box.reader()
    assert plain.poll() == version
    assert np.array_equal(plain.payload, weights(version))


@pytest.mark.covers("R4")
def test_checksum_alone_finds_a_mixture() -> None:
    box = mailbox()
    box.writer().publish(1, weights(1))
    reader = box.reader()
    box.payloads()[0:3, 77] ^= 1  # as if a store had overtaken the version's
    assert reader.poll() is None
    assert reader.torn_reads == MAX_READ_TRIES


@pytest.mark.covers("R4")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("versions", [1, 2, 3, 5])
def test_writer_killed_in_the_middle_leaves_the_previous_version(spawn, versions) -> None:
    box = mailbox()
    process = spawn(publish_and_die, mailbox=box, versions=versions)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    reader = box.reader()
    assert reader.poll() == versions - 1
    assert np.array_equal(reader.payload, weights(versions - 1))
    assert reader.torn_reads == 0
    box.writer().publish(versions, weights(versions))
    assert reader.poll() == versions
    assert np.array_equal(reader.payload, weights(versions))
    box.close()


@pytest.mark.fault
@pytest.mark.covers("R4")
@pytest.mark.timeout(60)
def test_stopped_and_killed_readers_block_nobody(spawn, stop) -> None:
    box = mailbox(2)
    report = message_pipe()
    ready = [StopSignal() for _ in range(2)]
    readers = [
        spawn(read_for, mailbox=box.for_reader(i), stop=stop, ready=ready[i], report=report[1], doorbell=i)
        for i in range(2)
    ]
    writer = box.writer()
    writer.publish(0, weights(0))
    for boots in ready:
        assert wait_any([boots], None, 30)
        boots.close()
    os.kill(readers[0].pid, signal.SIGSTOP)
    readers[1].kill()
    readers[1].join()
    cpu, wall = time.thread_time(), time.monotonic()
    for version in range(1, 2001):
        writer.publish(version, weights(0))
    assert time.monotonic() - wall < 10 + 5 * (time.thread_time() - cpu)
    reader = box.reader()
    assert reader.poll() == 2000
    for end in report:
        end.close()
    box.close()


@pytest.mark.timeout(30)
def test_doorbells_wake_and_wait_ends_with_stop(stop) -> None:
    box = mailbox(2)
    writer = box.writer()
    readers = [box.for_reader(i).reader(i) for i in range(2)]
    assert not wait_any([readers[0].doorbell_fd], None, 0)
    writer.publish(1, weights(1))
    for reader in readers:
        assert wait_any([reader.doorbell_fd], None, 5)
        assert reader.wait(1, stop, 5) == 1
        assert not wait_any([reader.doorbell_fd], None, 0)
    begin = time.thread_time()
    assert readers[0].wait(2, stop, 0.3) is None
    assert time.thread_time() - begin < 0.02
    stop.set()
    assert readers[0].wait(2, stop, 20) is None
    with pytest.raises(TransportError, match="no doorbell"):
        _ = box.reader().doorbell_fd
    box.close()


@pytest.mark.covers("R4")
def test_fetch_gives_exactly_one_version_or_nothing() -> None:
    box = mailbox(1)
    writer, reader = box.writer(), box.reader(0)
    assert not reader.fetch(1)
    for version in (1, 2, 3, 4):
        writer.publish(version, weights(version))
    assert not reader.fetch(1)  # overwritten
    assert reader.version == -1
    for version in (3, 3, 4):
        assert reader.fetch(version)
        assert np.array_equal(reader.payload, weights(version))
    with pytest.raises(AssertionError, match="never fall"):
        reader.fetch(3)
    box.close()
