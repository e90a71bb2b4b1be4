"""When gradient steps that are not finite end a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from motrix_rl.errors import MotrixError

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.agent import FastSACAgent
    from motrix_rl.algorithms.fastsac.flat import FlatAdamW

log = logging.getLogger(__name__)


class NonFiniteStepsError(MotrixError):
    """Too many gradient steps in a row were not finite; another start would bring the same."""

    final = True


class SkippedSteps:
    """Finds that an agent's steps are skipped one after the other. The same answer on every rank.

    The skips are counted on the device; they are read once in `limit` updates, so looking costs nothing.

    Args:
        agent: whose steps.
        limit: skipped steps in a row that are too many; 0 = never.
        folder: where the state is left when they are.
        name: the worker, for the file's name.
    """

    def __init__(self, agent: FastSACAgent, limit: int, folder: Path, name: str) -> None:
        self._agent = agent
        self._limit = limit
        self._folder = folder
        self._name = name
        self._looked_at = agent.updates_done
        self._streaks = (
            Streak(agent.critic_group.optimizer),
            Streak(agent.actor_group.optimizer),
        )

    def after_updates(self) -> None:
        """Looks, where it is time to.

        Raises:
            NonFiniteStepsError: too many steps in a row were skipped; the state is saved.
        """
        done = self._agent.updates_done
        if self._limit == 0 or done - self._looked_at < self._limit:
            return
        self._looked_at = done
        longest = max(streak.look() for streak in self._streaks)
        if longest < self._limit:
            return
        raise NonFiniteStepsError(
            f"{longest} gradient steps in a row were not finite (max_nan_steps={self._limit}); {self._keep()}"
        )

    def _keep(self) -> str:
        """Skipped steps change nothing, so the present state is the one before the first of them."""
        path = self._folder / f"{self._name}_nonfinite.pt"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            torch.save({"agent": self._agent.state_dict()}, path)
        except (OSError, RuntimeError) as fault:  # torch reports a full disk as a RuntimeError
            log.error("state not saved: %s", fault)
            return "the state could not be saved"
        return f"the state before them is in {path.name}"


class Streak:
    """Steps skipped in a row by one optimiser, up to the last look."""

    def __init__(self, optimizer: FlatAdamW) -> None:
        self._optimizer = optimizer
        self._taken, self._skipped = self._counts()
        self._length = 0

    def _counts(self) -> tuple[float, float]:
        return float(self._optimizer.steps), float(self._optimizer.skipped)

    def look(self) -> int:
        """The steps skipped since the last one that was taken; skips in a stretch with one taken are let be."""
        taken, skipped = self._counts()
        self._length = 0 if taken != self._taken else self._length + int(skipped - self._skipped)
        self._taken, self._skipped = taken, skipped
        return self._length
