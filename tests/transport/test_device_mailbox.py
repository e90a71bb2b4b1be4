"""The mailbox with payloads in device memory, on the CPU in place of a GPU and in one process."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from transport import DeviceWeightMailbox, TransportError

SIZE = 37


def payload(version: int) -> np.ndarray:
    return (np.arange(SIZE) + 100 * version).astype(np.float32)


@pytest.mark.covers("R4", "R6")
def test_the_newest_version_arrives_whole_and_stays() -> None:
    mailbox = DeviceWeightMailbox.create_on("cpu", 4 * SIZE, num_doorbells=1)
    writer = mailbox.writer()
    reader = mailbox.reader(0)
    assert reader.poll() is None
    for version in range(7):
        writer.publish(version, payload(version))
        if version % 2 == 0:
            assert reader.wait(version, timeout_s=0) == version
            held = reader.payload
            np.testing.assert_array_equal(held.numpy(), payload(version))
    assert reader.fetch(6)
    np.testing.assert_array_equal(held.numpy(), payload(6))
    assert reader.poll() is None
    assert reader.torn_reads == 0
    mailbox.close()


@pytest.mark.covers("R4")
def test_a_torn_copy_is_counted_and_what_is_in_hand_stays() -> None:
    mailbox = DeviceWeightMailbox.create_on("cpu", 4 * SIZE)
    writer, reader = mailbox.writer(), mailbox.reader()
    writer.publish(1, payload(1))
    assert reader.poll() == 1
    writer.publish(2, payload(2))
    mailbox.words()[int(mailbox.headers()[:, 0].argmax())][3] += 1
    assert reader.poll() is None
    assert reader.torn_reads > 0
    np.testing.assert_array_equal(reader.payload.numpy(), payload(1))
    mailbox.close()


def test_a_reader_that_got_nothing_says_so() -> None:
    mailbox = DeviceWeightMailbox.create_on("cpu", 4 * SIZE)
    with pytest.raises(TransportError, match="must be delivered before a reader opens them"):
        mailbox.reader()
    mailbox.writer()
    assert mailbox.__getstate__()["_words"] is None
    assert pickle.dumps(mailbox.message())
    mailbox.close()
