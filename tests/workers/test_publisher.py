"""Which version of the policy is published, when, and where."""

from __future__ import annotations

import pytest

from tests.workers.doubles_workers import CountingAgent
from transport import WeightMailbox
from workers.publisher import Publisher


def make(mailboxes: int = 1, interval: int = 4) -> tuple[CountingAgent, Publisher, list[WeightMailbox]]:
    agent = CountingAgent()
    boxes = [WeightMailbox.create(4 * agent.policy_size) for _ in range(mailboxes)]
    return agent, Publisher(agent, tuple(boxes), interval), boxes  # type: ignore[arg-type]


@pytest.mark.covers("D10")
def test_nothing_is_out_before_learning_begins() -> None:
    _, publisher, (box,) = make()
    assert publisher.version == -1
    assert box.reader().poll() is None


@pytest.mark.covers("D10", "R4")
def test_a_version_is_the_number_of_updates_it_holds_at_each_interval_also_inside_a_chunk() -> None:
    agent, publisher, boxes = make(mailboxes=2, interval=4)
    readers = [box.reader() for box in boxes]
    seen = []
    publisher.publish()
    for _ in range(11):
        agent.updates_done += 1
        publisher.after_update(agent.updates_done)
        for reader in readers:
            reader.poll()
            assert reader.payload[0] == reader.version == agent.updates_done // 4 * 4
        seen.append(readers[0].version)
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8]


@pytest.mark.covers("D10")
def test_the_same_version_goes_out_once() -> None:
    agent, publisher, (box,) = make()
    publisher.publish()
    publisher.publish()
    agent.updates_done = 4
    publisher.after_update(4)
    publisher.publish()
    assert box.reader().poll() == 4


def test_a_rank_that_serves_no_node_publishes_into_nothing() -> None:
    agent, publisher, _ = make(mailboxes=0)
    agent.updates_done = 4
    publisher.after_update(4)
    assert publisher.version == 4
