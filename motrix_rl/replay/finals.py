"""Bookkeeping of the final-observation pool: which entry belongs to which row, in order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class FinalPool:
    """Ring of `size` entries behind the observation storage; on the host, the data lies with the replay.

    Entries are handed out in order of time, so a full pool reuses its oldest. Rows are named by their
    absolute number (`time * num_envs + env`, never reused), so that an entry whose row has left the ring is
    known to be dead by comparison alone.

    Args:
        size: Number of entries.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"final pool size {size} is negative")
        self.size = size
        self._owner = np.full(size, -1, dtype=np.int64)
        self._next = 0
        self._filled = 0

    @property
    def used(self) -> int:
        """Entries ever written, a prefix of the pool."""
        return self._filled

    def put(self, rows: np.ndarray, oldest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Finds entries for the final observations of `rows`.

        Args:
            rows: `[F]` int64 absolute row numbers, ascending.
            oldest: Lowest absolute row number still in the ring.

        Returns:
            `(kept, entries, evicted)`: positions in `rows` that got an entry, the entry of each, and the
            absolute numbers of rows that have lost theirs or got none.
        """
        surplus = max(0, rows.size - self.size)
        kept = np.arange(surplus, rows.size)
        if not kept.size:
            return kept, kept.copy(), rows.copy()
        entries = (self._next + np.arange(kept.size)) % self.size
        old = self._owner[entries]
        evicted = np.concatenate([old[old >= oldest], rows[:surplus]])
        self._owner[entries] = rows[kept]
        self._filled = max(self._filled, min(self.size, self._next + kept.size))
        self._next = int((self._next + kept.size) % self.size)
        return kept, entries, evicted

    def state_dict(self) -> dict[str, Any]:
        """Owners and position."""
        return {"owner": torch.from_numpy(self._owner.copy()), "next": self._next, "filled": self._filled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        self._owner[:] = state["owner"].numpy()
        self._next, self._filled = state["next"], state["filled"]
