"""What a learner does next: how many updates are owed, and the one decision that all ranks carry out.

The arithmetic is in :class:`UpdateSchedule`, a pure value. Rank 0 turns what it sees into a
:class:`Decision`; every rank, rank 0 included, then carries out that decision and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

UtdMode = Literal["strict", "learner_bound"]


class Operation(IntEnum):
    """What every rank does next."""

    TRAIN = 1  #: admit up to ``generation``, then ``num_updates`` updates
    SAVE = 2  #: write a checkpoint of the present state
    STOP = 3  #: leave the loop


@dataclass(frozen=True)
class Decision:
    """One agreed step of all ranks.

    Attributes:
        operation: what to do.
        num_updates: gradient updates to perform (TRAIN only).
        generation: number of generations admitted once the decision has been carried out.
    """

    operation: Operation
    num_updates: int
    generation: int


def warmup_generations(learning_starts: int, num_envs: int, n_step: int) -> int:
    """Generations collected before the first update.

    Args:
        learning_starts: transitions over all machines.
        num_envs: environments over all machines.
        n_step: length of the n-step window; a sample needs that many rows and the one after.
    """
    return max(math.ceil(learning_starts / num_envs), n_step)


@dataclass(frozen=True)
class UpdateSchedule:
    """How many updates are owed once ``G`` generations have been admitted.

    In ``strict`` mode ``due(G) = anchor + num_updates * max(0, G - base)``. ``anchor`` is 0 in a run that
    was never resumed. A resume that refills the replay, or changes ``num_updates``, keeps the updates done
    until then as the anchor and counts from the end of the refill.

    Attributes:
        num_updates: updates owed for each generation after ``base``.
        base: generations that owe nothing (the warm-up, and the refill after a resume without replay).
        anchor: updates that were done before ``base``.
        mode: ``strict`` owes exactly the formula; ``learner_bound`` owes ``num_updates`` whenever
            anything new was admitted, however much.
    """

    num_updates: int
    base: int
    anchor: int = 0
    mode: UtdMode = "strict"

    def due(self, generation: int) -> int:
        """Updates owed in all once ``generation`` generations have been admitted (strict)."""
        return self.anchor + self.num_updates * max(0, generation - self.base)

    def owed(self, admitted: int, target: int, done: int) -> int:
        """Updates to perform when going from ``admitted`` to ``target`` generations.

        Args:
            admitted: generations admitted so far.
            target: generations admitted afterwards.
            done: updates done so far.
        """
        if target <= admitted:
            return 0
        if self.mode == "learner_bound":
            return self.num_updates if target > self.base else 0
        return max(0, self.due(target) - done)

    def resumed(
        self, *, num_updates: int, mode: UtdMode, generation: int, done: int, refill: int
    ) -> UpdateSchedule:
        """The schedule after a resume.

        Args:
            num_updates: the rate of the resumed run.
            mode: the mode of the resumed run.
            generation: generations admitted when the checkpoint was written.
            done: updates done then.
            refill: generations to collect before the first update because the replay was not saved
                (0 when it was). They owe nothing, so a resume is never repaid as a burst.
        """
        kept = replace(self, num_updates=num_updates, mode=mode)
        if generation < self.base:  # still in the warm-up; nothing is owed yet
            return replace(kept, base=max(self.base, generation + refill))
        if refill == 0 and num_updates == self.num_updates and done == self.due(generation):
            return kept
        return replace(kept, base=generation + refill, anchor=done)

    def state_dict(self) -> dict[str, int | str]:
        """Plain values for the checkpoint."""
        return {"num_updates": self.num_updates, "base": self.base, "anchor": self.anchor, "mode": self.mode}


@dataclass(frozen=True)
class ActingSchedule:
    """Which version acts in which generation, in the deterministic mode. A version is a number of generations.

    Attributes:
        lag: generation g acts with what was learnt from generations up to g - 1 - lag.
        save_interval: at its multiples everybody waits for everybody, so that a run that is resumed there goes
            on as the uninterrupted one does; 0 = never.
        start: first generation of this life of the run; no older version exists.
    """

    lag: int
    save_interval: int
    start: int = 0

    @classmethod
    def of(cls, config: RootConfig, start: int) -> ActingSchedule | None:
        """That of a configuration, for a life that starts at generation ``start``; None in a race."""
        return cls(config.lag, config.checkpoint.interval, start) if config.deterministic else None

    def version(self, generation: int) -> int:
        """The version that acts in ``generation``."""
        boundary = generation // self.save_interval * self.save_interval if self.save_interval else 0
        return max(generation - self.lag, boundary, self.start)

    def is_boundary(self, generation: int) -> bool:
        """Whether collectors save their state before they act in ``generation``."""
        return self.save_interval > 0 and generation > self.start and generation % self.save_interval == 0


@dataclass(frozen=True)
class LearnerView:
    """What rank 0 knows when it decides.

    Attributes:
        admitted: generations admitted.
        complete: generations whose shards have all arrived (``>= admitted``).
        done: updates done.
        total: generations at which the run ends.
        stopping: the stop signal is raised.
        save_due: a checkpoint is due at ``admitted``.
        saved: one was written at ``admitted``, or tried.
    """

    admitted: int
    complete: int
    done: int
    total: int
    stopping: bool
    save_due: bool
    saved: bool


def decide(
    view: LearnerView, schedule: UpdateSchedule, max_ingest: int, boundaries: int = 0
) -> Decision | None:
    """Rank 0's decision, or ``None`` while there is nothing to do but wait for data.

    Args:
        view: what rank 0 sees.
        schedule: what is owed.
        max_ingest: most generations admitted by one decision.
        boundaries: a multiple that no decision crosses (the checkpoint interval; 0 = none), so that a
            checkpoint is written at exactly the generation it names.
    """
    ending = view.stopping or view.admitted >= view.total
    if (view.save_due or ending) and not view.saved:
        return Decision(Operation.SAVE, 0, view.admitted)
    if ending:
        return Decision(Operation.STOP, 0, view.admitted)
    target = min(view.complete, view.admitted + max_ingest, view.total)
    if boundaries > 0:
        target = min(target, (view.admitted // boundaries + 1) * boundaries)
    if target <= view.admitted:
        return None
    return Decision(Operation.TRAIN, schedule.owed(view.admitted, target, view.done), target)
