"""T3: counts that must divide exactly, and for those that do not, the nearest values that would.

Every suggestion holds for all rules at once: putting it into the request as it stands makes the counts legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topology.errors import RequestError
from topology.request import TrainerRequest


@dataclass(frozen=True)
class Counts:
    """The numbers of a run; environments and batch over all machines, learners and collectors per machine."""

    num_envs: int
    batch_size: int
    num_learners: int
    num_collectors: int
    nnodes: int

    @property
    def envs_per_collector(self) -> int:
        return self.num_envs // (self.nnodes * self.num_collectors)

    @property
    def batch_per_rank(self) -> int:
        return self.batch_size // (self.nnodes * self.num_learners)

    def legal(self) -> bool:
        """Whether shards, owners and batches all divide exactly."""
        return (
            self.num_collectors % self.num_learners == 0
            and self.num_envs % (self.nnodes * self.num_collectors) == 0
            and self.batch_size % (self.nnodes * self.num_learners) == 0
        )


def resolve_counts(request: TrainerRequest, num_learners: int, *, learners_fixed: bool) -> Counts:
    """Fills in the default number of collectors and checks that everything divides.

    Args:
        request: the request.
        num_learners: learners on this machine, as asked for or as the list of devices says.
        learners_fixed: a list of devices fixes the number of learners, so no other number is suggested.

    Raises:
        RequestError: a rule is broken; the message names the nearest values that work.
    """
    return _Rules(request, num_learners, learners_fixed).check()


class _Rules:
    def __init__(self, request: TrainerRequest, num_learners: int, learners_fixed: bool) -> None:
        self.request = request
        self.learners_fixed = learners_fixed
        self.counts = self.make(num_learners=num_learners)

    def make(
        self,
        *,
        num_learners: int | None = None,
        num_collectors: int | None = None,
        num_envs: int | None = None,
        batch_size: int | None = None,
    ) -> Counts:
        """The counts of the request with some of them replaced; collectors not given follow learners."""
        learners = num_learners if num_learners is not None else self.counts.num_learners
        collectors = num_collectors if num_collectors is not None else self.request.num_collectors
        return Counts(
            num_envs=num_envs or self.request.num_envs,
            batch_size=batch_size or self.request.batch_size,
            num_learners=learners,
            num_collectors=collectors if collectors is not None else learners,
            nnodes=self.request.world.nnodes,
        )

    def check(self) -> Counts:
        c = self.counts
        machines = f" on each of {c.nnodes} machines" if c.nnodes > 1 else ""
        if c.num_collectors % c.num_learners:
            raise self.refusal(
                f"num_collectors={c.num_collectors} cannot be shared evenly by "
                f"num_learners={c.num_learners}{machines}",
                ("num_collectors", "num_learners"),
            )
        if c.num_envs % (c.nnodes * c.num_collectors):
            raise self.refusal(
                f"num_envs={c.num_envs} cannot be divided over {c.num_collectors} collector(s){machines}",
                ("num_envs", "num_collectors", "num_learners"),
            )
        if c.batch_size % (c.nnodes * c.num_learners):
            raise self.refusal(
                f"batch_size={c.batch_size} cannot be divided over {c.num_learners} learner(s){machines}",
                ("batch_size", "num_learners"),
            )
        return c

    def refusal(self, what: str, options: Iterable[str]) -> RequestError:
        found = {option: values for option in options if (values := self.nearest(option))}
        if not found:  # several rules are broken at once: name what repairs the first ones
            found = self.nearest_together()
        phrases = [f"{name}={' or '.join(map(str, values))}" for name, values in found.items()]
        joined = (", " if len(found) < 2 or self.single(found) else " with ").join(phrases)
        hint = f"; nearest that work: {joined}" if phrases else ""
        return RequestError(what + hint, found)

    def single(self, found: dict[str, list[int]]) -> bool:
        """Whether each suggestion repairs the request by itself."""
        return all(self.make(**{name: values[0]}).legal() for name, values in found.items())

    def nearest(self, option: str) -> list[int]:
        """The nearest legal values of one option below and above, the others as they are."""
        c = self.counts
        if option == "num_envs":
            return self.neighbours(
                c.num_envs, self.multiples(c.num_envs, c.nnodes * c.num_collectors), "num_envs"
            )
        if option == "batch_size":
            step = c.nnodes * c.num_learners
            return self.neighbours(c.batch_size, self.multiples(c.batch_size, step), "batch_size")
        if option == "num_collectors":
            return self.neighbours(c.num_collectors, range(1, c.num_envs // c.nnodes + 1), "num_collectors")
        if self.learners_fixed:
            return []
        return self.neighbours(c.num_learners, range(1, c.batch_size // c.nnodes + 1), "num_learners")

    @staticmethod
    def multiples(value: int, step: int) -> list[int]:
        low = value // step * step
        return [v for v in (low, low + step) if v > 0]

    def neighbours(self, value: int, candidates: Iterable[int], option: str) -> list[int]:
        legal: Callable[[int], bool] = lambda v: v != value and self.make(**{option: v}).legal()  # noqa: E731
        if isinstance(candidates, range):  # walk outwards, so that huge numbers of environments cost nothing
            below = next((v for v in range(min(value - 1, candidates.stop - 1), 0, -1) if legal(v)), None)
            above = next(
                (v for v in range(value + 1, min(candidates.stop, value * 64 + 64)) if legal(v)), None
            )
            found = [v for v in (below, above) if v is not None]
        else:
            found = [v for v in candidates if legal(v)]
        return sorted(found, key=lambda v: (abs(v - value), v))

    def nearest_together(self) -> dict[str, list[int]]:
        """One legal combination near the request: collectors first, then environments and batch."""
        c = self.counts
        collectors = max(1, round(c.num_collectors / c.num_learners)) * c.num_learners
        envs_step, batch_step = c.nnodes * collectors, c.nnodes * c.num_learners
        wanted = {
            "num_collectors": (c.num_collectors, collectors),
            "num_envs": (c.num_envs, max(1, round(c.num_envs / envs_step)) * envs_step),
            "batch_size": (c.batch_size, max(1, round(c.batch_size / batch_step)) * batch_step),
        }
        return {name: [new] for name, (old, new) in wanted.items() if new != old}
