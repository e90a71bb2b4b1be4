"""Episode returns and lengths, computed from the slots themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Finished episodes over which the shown mean return and length are taken.
WINDOW = 100


@dataclass(frozen=True)
class EpisodeSummary:
    """Means over the last :data:`WINDOW` finished episodes, and counts since the start.

    Attributes:
        return_mean: mean undiscounted return; NaN before the first end.
        length_mean: mean length in steps; NaN before the first end.
        window: episodes in these means.
        episodes: episodes finished since the start (terminated or truncated).
        aborted: episodes that a restart, a resume or a non-finite value cut off. They are no results.
    """

    return_mean: float
    length_mean: float
    window: int
    episodes: int
    aborted: int


class EpisodeStatistics:
    """Running return and length of every environment of one rank.

    Args:
        num_envs: environments of the rank; column ``i`` is the environment that fills replay column ``i``.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._finished: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.aborted = 0

    def add(self, lo: int, reward: npt.NDArray[Any], ended: npt.NDArray[Any], cut: npt.NDArray[Any]) -> None:
        """Adds one step of the environments ``lo .. lo + E``.

        Args:
            lo: first environment of the shard.
            reward: rewards, ``[E]`` float32.
            ended: terminated or truncated, ``[E]``.
            cut: rows that the next one does not continue, ``[E]``.
        """
        rows = slice(lo, lo + len(reward))
        self._return[rows] += reward
        self._length[rows] += 1
        if ended.any():
            for index in lo + np.flatnonzero(ended):
                self._finished.append((float(self._return[index]), int(self._length[index])))
                self.episodes += 1
                self._clear(int(index))
        if cut.any():
            self.abort(lo + np.flatnonzero((cut != 0) & (ended == 0)))

    def abort(self, indices: npt.NDArray[np.int64] | Sequence[int]) -> None:
        """Drops the unfinished episodes of these environments."""
        for index in indices:
            self.aborted += int(self._length[index] > 0)
            self._clear(int(index))

    def _clear(self, index: int) -> None:
        self._return[index] = 0.0
        self._length[index] = 0

    def summary(self) -> EpisodeSummary:
        """The figures shown to the user."""
        count = len(self._finished)
        mean_return = sum(r for r, _ in self._finished) / count if count else float("nan")
        mean_length = sum(n for _, n in self._finished) / count if count else float("nan")
        return EpisodeSummary(mean_return, mean_length, count, self.episodes, self.aborted)

    def state_dict(self) -> dict[str, Any]:
        """Counters, the window, and the running episodes (which only a deterministic resume goes on with)."""
        return {
            "running": [self._return.tolist(), self._length.tolist()],
            "episodes": self.episodes,
            "aborted": self.aborted,
            "finished": [list(pair) for pair in self._finished],
        }

    def load_state_dict(self, state: dict[str, Any], *, running: bool = False) -> None:
        """Restores what :meth:`state_dict` wrote.

        Args:
            state: what it wrote.
            running: the environments go on too, and with them their episodes.
        """
        if running:
            self._return[:], self._length[:] = state["running"]
        self.episodes = int(state["episodes"])
        self.aborted = int(state["aborted"])
        self._finished.clear()
        self._finished.extend((float(r), int(n)) for r, n in state["finished"])
