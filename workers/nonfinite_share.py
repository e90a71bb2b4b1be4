"""When an environment's NaN and Inf end a run."""

from __future__ import annotations

#: Fewer transitions than this say nothing about a share.
FEWEST_TRANSITIONS = 64


class CutShare:
    """The share of transitions that were cut because an environment gave NaN or Inf, record by record.

    Args:
        largest: the share that is still borne.
    """

    def __init__(self, largest: float) -> None:
        self._largest = largest
        self._cut = 0
        self._steps = 0

    def see(self, cut: int, steps: int) -> str | None:
        """Counts at a metrics record.

        Args:
            cut: transitions cut so far.
            steps: transitions collected so far.

        Returns:
            Why the run cannot go on, or None.
        """
        new = steps - self._steps
        if new < FEWEST_TRANSITIONS:
            return None
        share = (cut - self._cut) / new
        self._cut, self._steps = cut, steps
        if share <= self._largest:
            return None
        return (
            f"{share:.0%} of the last {new} transitions were cut because the environment gave NaN or Inf"
            f" (max_nonfinite_share={self._largest:g}); the collectors' logs name the worlds"
        )
