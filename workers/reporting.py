"""What learner rank 0 tells the supervisor: figures for the panel, records for the metrics file."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from transport import PipeWriter
from workers.assembler import Shard

if TYPE_CHECKING:
    from workers.learning_loop import Learner

#: Seconds between two messages for the panel, when no metrics record is due.
STATUS_INTERVAL_S = 1.0


class PolicyLag:
    """Updates between acting and admission, since the last record: sum, count and maximum over slots."""

    def __init__(self) -> None:
        self.clear()

    def add(self, lag: int) -> None:
        """One slot that acted with a policy ``lag`` updates old."""
        self.sum += lag
        self.count += 1
        self.max = max(self.max, lag)

    def clear(self) -> None:
        """Starts a new interval."""
        self.sum = self.count = self.max = 0


class LearnerReport:
    """Builds and sends the messages. Never waits: a full pipe drops a panel update, not a training step.

    A metrics record is put together by all ranks, at the same generation on each; a panel update between two
    records is rank 0's own view.

    Args:
        messages: pipe to the supervisor.
        interval: generations between two metrics records.
        num_envs: environments over all machines.
        start: generation the run starts at.
    """

    def __init__(self, messages: PipeWriter, *, interval: int, num_envs: int, start: int) -> None:
        self._messages = messages
        self._interval = interval
        self._num_envs = num_envs
        self._lag = PolicyLag()
        self._losses: dict[str, float | None] = {}
        self._sent_at = time.monotonic()
        self._recorded = start // interval

    def saw_slot(self, learner: Learner, shard: Shard) -> None:
        """Notes the policy lag of an admitted shard; one that acted at random has none."""
        if shard.policy_version >= 0:
            self._lag.add(learner.policy_lag(shard.policy_version))

    def after_decision(self, learner: Learner, generation: int) -> None:
        """Sends a record when one is due, else a panel update when a second has passed.

        Args:
            learner: whose figures.
            generation: what was decided, which is the same number on every rank.
        """
        if generation // self._interval > self._recorded:
            self._recorded = generation // self._interval
            self._record(learner, timeout_s=0.5)
        elif time.monotonic() - self._sent_at >= STATUS_INTERVAL_S and learner.ranks.rank == 0:
            # Reading the agent's means starts them anew, which all ranks must do together: see `_record`.
            if learner.ranks.world_size == 1:
                self._note_losses(learner.agent.metrics())
            self._send("status", learner, self._own_figures(learner), timeout_s=0.0)

    def flush(self, learner: Learner) -> None:
        """The last record of a run."""
        self._record(learner, timeout_s=2.0)

    def note(self, text: str, **extra: Any) -> None:
        """One line for the user."""
        self._messages.send({"kind": "note", "text": text, **extra}, timeout_s=0.5)

    def stopping(self, reason: str) -> None:
        """This rank is about to raise stop; said first, so that the supervisor knows why when it sees it."""
        self._messages.send({"kind": "stopping", "reason": reason}, timeout_s=0.5)

    def recovered(self, collector: int, generation: int) -> None:
        """The ring of a dead collector is in order."""
        self._messages.send(
            {"kind": "recovered", "collector": collector, "generation": generation}, timeout_s=2.0
        )

    # Records ------------------------------------------------------------------------------------------------

    def _record(self, learner: Learner, timeout_s: float) -> None:
        """Counts are summed over ranks, means weighted by them, losses averaged, the largest lag kept."""
        losses = learner.agent.metrics()
        own = self._own_figures(learner)
        self._lag.clear()
        rows = learner.ranks.gather("metrics", [*own.values(), *losses.values()])
        if learner.ranks.rank != 0:
            return
        figures = dict(zip(own, rows[:, : len(own)].sum(0).tolist(), strict=True))
        column = list(own).index("lag_max")
        figures["lag_max"] = float(rows[:, column].max())
        self._note_losses(dict(zip(losses, rows[:, len(own) :].mean(0).tolist(), strict=True)))
        self._send("metrics", learner, figures, timeout_s)

    def _note_losses(self, losses: dict[str, float]) -> None:
        # The agent's means start anew at each call, and some are missing when no update was done since.
        self._losses |= {key: _finite(float(value)) for key, value in losses.items()}

    def _own_figures(self, learner: Learner) -> dict[str, float]:
        """What this rank adds to the sums."""
        episodes = learner.statistics.summary()
        window = episodes.window
        return {
            "return_sum": window * episodes.return_mean if window else 0.0,
            "length_sum": window * episodes.length_mean if window else 0.0,
            "window": window,
            "episodes": episodes.episodes,
            "aborted": episodes.aborted,
            "replay_size": learner.replay.size,
            "replay_cut": learner.replay.cut_by_overflow,
            "lag_sum": self._lag.sum,
            "lag_count": self._lag.count,
            "lag_max": self._lag.max,
        }

    def _send(self, kind: str, learner: Learner, figures: dict[str, float], timeout_s: float) -> None:
        self._sent_at = time.monotonic()
        schedule, done = learner.schedule, learner.agent.updates_done
        learned = learner.admitted - schedule.base
        window, lags = figures["window"], figures["lag_count"]
        message = {
            "kind": kind,
            "generation": learner.admitted,
            "env_steps": learner.admitted * self._num_envs,
            "updates": done,
            "updates_due": schedule.due(learner.admitted),
            "utd_asked": schedule.num_updates,
            "utd_kept": (done - schedule.anchor) / learned if learned > 0 else None,
            "return_mean": figures["return_sum"] / window if window else None,
            "length_mean": figures["length_sum"] / window if window else None,
            "return_window": int(window),
            "episodes": int(figures["episodes"]),
            "episodes_aborted": int(figures["aborted"]),
            "policy_lag_mean": figures["lag_sum"] / lags if lags else None,
            "policy_lag_max": int(figures["lag_max"]) if lags else None,
            "policy_version": learner.publisher.version,
            "replay_size": int(figures["replay_size"]),
            "replay_cut_by_overflow": int(figures["replay_cut"]),
            "losses": dict(self._losses),
        }
        self._messages.send(message, timeout_s=timeout_s)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
