"""What learner rank 0 tells the supervisor: figures for the panel, records for the metrics file."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from transport import PipeWriter, SlotView

if TYPE_CHECKING:
    from workers.learning_loop import Learner

#: Seconds between two messages for the panel, when no metrics record is due.
STATUS_INTERVAL_S = 1.0


class PolicyLag:
    """Mean and maximum of the updates that separate acting from admission, since the last record."""

    def __init__(self) -> None:
        self.clear()

    def add(self, lag: int) -> None:
        """One slot that acted with a policy ``lag`` updates old."""
        self._sum += lag
        self._count += 1
        self._max = max(self._max, lag)

    def clear(self) -> None:
        """Starts a new interval."""
        self._sum = self._count = self._max = 0

    @property
    def mean(self) -> float:
        """NaN when nothing was admitted."""
        return self._sum / self._count if self._count else math.nan

    @property
    def max(self) -> int:
        """0 when nothing was admitted."""
        return self._max


class LearnerReport:
    """Builds and sends the messages. Never waits: a full pipe drops a panel update, not a training step.

    Args:
        messages: pipe to the supervisor.
        interval: generations between two metrics records.
        num_envs: environments of this rank.
    """

    def __init__(self, messages: PipeWriter, *, interval: int, num_envs: int) -> None:
        self._messages = messages
        self._interval = interval
        self._num_envs = num_envs
        self._lag = PolicyLag()
        self._losses: dict[str, float | None] = {}
        self._sent_at = time.monotonic()
        self._recorded_at: int | None = None

    def saw_slot(self, learner: Learner, shard: SlotView) -> None:
        """Notes the policy lag of an admitted shard; one that acted at random has none."""
        if shard.policy_version >= 0:
            self._lag.add(learner.agent.updates_done - shard.policy_version)

    def after_decision(self, learner: Learner) -> None:
        """Sends a record when one is due, else a panel update when a second has passed."""
        now = time.monotonic()
        if self._recorded_at is None:
            self._recorded_at = learner.admitted // self._interval
        bucket = learner.admitted // self._interval
        if bucket > self._recorded_at:
            self._recorded_at = bucket
            self._sent_at = now
            self._messages.send({"kind": "metrics", **self._figures(learner)}, timeout_s=0.5)
            self._lag.clear()
        elif now - self._sent_at >= STATUS_INTERVAL_S:
            self._sent_at = now
            self._messages.send({"kind": "status", **self._figures(learner)})

    def flush(self, learner: Learner) -> None:
        """The last record of a run."""
        self._messages.send({"kind": "metrics", **self._figures(learner)}, timeout_s=2.0)

    def note(self, text: str, **extra: Any) -> None:
        """One line for the user."""
        self._messages.send({"kind": "note", "text": text, **extra}, timeout_s=0.5)

    def recovered(self, collector: int, generation: int) -> None:
        """The ring of a dead collector is in order."""
        self._messages.send(
            {"kind": "recovered", "collector": collector, "generation": generation}, timeout_s=2.0
        )

    def _figures(self, learner: Learner) -> dict[str, Any]:
        # The agent's means start anew at each call, and some are missing when no update was done since.
        self._losses |= {key: _finite(float(value)) for key, value in learner.agent.metrics().items()}
        episodes = learner.statistics.summary()
        done = learner.agent.updates_done
        base = learner.schedule.base
        learned = learner.admitted - base
        return {
            "generation": learner.admitted,
            "env_steps": learner.admitted * self._num_envs,
            "updates": done,
            "updates_due": learner.schedule.due(learner.admitted),
            "utd_asked": learner.schedule.num_updates,
            "utd_kept": (done - learner.schedule.anchor) / learned if learned > 0 else None,
            "return_mean": _finite(episodes.return_mean),
            "length_mean": _finite(episodes.length_mean),
            "return_window": episodes.window,
            "episodes": episodes.episodes,
            "episodes_aborted": episodes.aborted,
            "policy_lag_mean": _finite(self._lag.mean),
            "policy_lag_max": self._lag.max,
            "policy_version": learner.publisher.version,
            "replay_size": learner.replay.size,
            "replay_cut_by_overflow": learner.replay.cut_by_overflow,
            "losses": self._losses,
        }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
