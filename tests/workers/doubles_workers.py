"""Stand-ins for parts of a learner, where only when and how they are called matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motrix_rl.replay.buffer import ReplayBuffer
from transport import WeightMailbox
from workers.collectives import SoloRank
from workers.decision import Decision
from workers.learning_loop import Learner


class CountingAgent:
    """Stands in for the agent where only the number of updates matters."""

    policy_size = 4

    def __init__(self) -> None:
        self.updates_done = 0
        self.calls: list[int] = []

    def update(self, replay: ReplayBuffer, count: int, on_update: Callable[[int], None]) -> None:
        assert replay.ready, "an update from a replay that holds no window"
        self.calls.append(count)
        for _ in range(count):
            self.updates_done += 1
            on_update(self.updates_done)

    def policy_vector(self, out: NDArray[np.float32]) -> None:
        out[:] = self.updates_done

    def observe(self, *_: Any, **__: Any) -> None:
        pass

    def mark_last_cut(self, lo: int, hi: int) -> None:
        pass

    def sync_statistics(self) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}


class RecordedRank(SoloRank):
    """The only rank; it keeps the decisions that went through it, and looks at each one first."""

    def __init__(self, on_decision: Callable[[Decision], None]) -> None:
        self.taken: list[Decision] = []
        self._on_decision = on_decision

    def share(self, decision: Decision | None) -> Decision:
        shared = super().share(decision)
        self._on_decision(shared)
        self.taken.append(shared)
        return shared


class NotedSaves:
    """Stands in for the writer of checkpoints where only when it is asked matters."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def save(self, learner: Learner) -> None:
        self.saved.append(learner.admitted)


class NotedRequests:
    """Notes at which generations a policy was put up for evaluation."""

    def __init__(self, mailbox: WeightMailbox) -> None:
        self.at: list[int] = []
        self._reader = mailbox.reader()

    def look(self) -> None:
        """Takes what is new."""
        version = self._reader.poll()
        if version is not None:
            self.at.append(version)
