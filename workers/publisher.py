"""Publishes the policy: what version, when, into which mailboxes."""

from __future__ import annotations

import numpy as np

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from transport import WeightMailbox


class Publisher:
    """Writes the flat policy vector into every mailbox this rank serves.

    In the asynchronous mode a version is the number of updates done when it was written, so that the
    difference between the version in a slot and the learner's own count is the policy lag in updates. In the
    deterministic mode it is the number of generations learnt from, which is what the schedule names.

    Args:
        agent: whose policy is published.
        mailboxes: this rank is their only writer; may be empty (another rank serves the node).
        interval: gradient steps between two versions; 0 = none by itself (deterministic mode).
    """

    def __init__(self, agent: FastSACAgent, mailboxes: tuple[WeightMailbox, ...], interval: int) -> None:
        self._agent = agent
        self._writers = [mailbox.writer() for mailbox in mailboxes]
        self._interval = interval
        self._payload = np.zeros(agent.policy_size, np.float32)
        self.version = -1

    def publish(self, version: int | None = None) -> None:
        """Publishes the present policy, unless just this version is out already.

        In the asynchronous mode nothing is published before learning begins: the warm-up acts at random, and
        fills the normaliser that is part of the first version.

        Args:
            version: its number; None = the updates done.
        """
        version = self._agent.updates_done if version is None else version
        if self.version == version:
            return
        self.version = version
        self._agent.policy_vector(self._payload)
        for writer in self._writers:
            writer.publish(version, self._payload)

    def after_update(self, updates_done: int) -> None:
        """Hook of the agent's update loop: publishes at the interval, also inside a long chunk."""
        if self._interval and updates_done % self._interval == 0:
            self.publish()
