"""When a dead worker is started again, and when that is given up. Plain bookkeeping, without a process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: Restarts of a collector are counted within this many seconds.
WINDOW_S = 600.0
#: A collector that died so often in a row without having collected anything would only do so again.
MAX_FRUITLESS = 2
#: No restart waits longer than this many seconds.
LONGEST_WAIT_S = 30.0


@dataclass
class CollectorRestarts:
    """The lives of one collector.

    Attributes:
        limit: restarts allowed within `WINDOW_S`.
    """

    limit: int
    _recent: deque[float] = field(default_factory=deque[float])
    _born_at: int = -1
    _fruitless: int = 0

    def born(self, generation: int) -> None:
        """A life begins; the first generation that it will commit."""
        self._born_at = generation

    def another(self, now: float, generation: int) -> float | str:
        """Its life has ended: seconds until the next one begins, or why there is none.

        Args:
            now: monotonic seconds.
            generation: the next one to commit.

        Returns:
            0, 1, 2, 4 ... seconds, more with every restart in the window; or a reason, empty where restarts
            are switched off.
        """
        if self.limit == 0:
            return ""
        self._fruitless = 0 if generation > self._born_at else self._fruitless + 1
        if self._fruitless >= MAX_FRUITLESS:
            return f"{self._fruitless} times in a row before it had collected a step"
        while self._recent and now - self._recent[0] > WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= self.limit:
            return (
                f"started again {self.limit} times within {WINDOW_S / 60:g} minutes (max_collector_restarts)"
            )
        before = len(self._recent)
        self._recent.append(now)
        return min(LONGEST_WAIT_S, 2.0 ** (before - 1)) if before else 0.0


@dataclass
class LearnerRestarts:
    """The lives of a run whose learners may die.

    Attributes:
        limit: restarts allowed in all.
        done: restarts so far.
    """

    limit: int
    done: int = 0

    def another(self, began: int, ended: int) -> str | None:
        """A life has ended by a learner's fault: None to begin another one, or why there is none.

        Args:
            began: generation at which the life began.
            ended: generation at which it ended.
        """
        if self.limit == 0:
            return ""
        if ended <= began:
            return f"no new generation since {began}: it would only happen again"
        if self.done >= self.limit:
            return f"started again {self.limit} times (max_learner_restarts)"
        self.done += 1
        return None
