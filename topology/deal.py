"""T2: deals the cores of one pool to its learners, its collectors and, where it sits there, the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from topology.cpulist import format_kernel
from topology.errors import RequestError
from topology.pools import Core, Pool, cpu_slots, flatten

MAX_EVALUATOR_CORES = 4


@dataclass(frozen=True)
class Demand:
    """Who is to be seated in a pool.

    Attributes:
        learners: learners of the pool.
        collectors: collectors of the pool.
        on_cpu: whether a learner computes on its CPUs rather than on a GPU.
        max_cpu_learner_cores: cores of which it makes use then.
        cpus_per_collector: the user's number, or None.
        evaluator: whether the evaluator is to find a seat here.
    """

    learners: int
    collectors: int
    on_cpu: bool
    max_cpu_learner_cores: int
    cpus_per_collector: int | None
    evaluator: bool


@dataclass(frozen=True)
class Seats:
    """CPU lists of one pool; `learners` and `collectors` in order of rank and of index on the node.

    Attributes:
        learner_sharers: how many workers may run on a learner's CPUs, itself included (bounds its threads).
        collector_sharers: the same for a collector.
        evaluator: its own CPUs, or None where it has to share.
        notes: reasons.
    """

    learners: tuple[tuple[int, ...], ...]
    collectors: tuple[tuple[int, ...], ...]
    learner_sharers: int = 1
    collector_sharers: int = 1
    evaluator: tuple[int, ...] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def shared(self) -> bool:
        return self.learner_sharers > 1 or self.collector_sharers > 1


def learner_cores(cores: int, demand: Demand) -> int:
    """Cores for each learner: on the CPU what it makes use of, at most half of its share; one to four beside a GPU."""
    share = cores // demand.learners
    if demand.on_cpu:
        wanted = min(demand.max_cpu_learner_cores, share // 2)
    else:
        # The learner's own thread, autograd's, the copies' and the reducer's; more would only be taken from
        # the collectors.
        wanted = 1 if share < 8 else 2 if share < 32 else 4
    return max(1, min(wanted, (cores - demand.collectors) // demand.learners))


def deal(pool: Pool, demand: Demand, max_learner_cores: int) -> Seats:
    """Seats everyone of a pool.

    Args:
        pool: the cores.
        demand: who is there.
        max_learner_cores: the number that all ranks of the machine can have, so that they are alike.

    Raises:
        RequestError: `cpus_per_collector` is more than there is.
    """
    if pool.collector_cores is not None:
        return _deal_lists(pool, demand, pool.collector_cores)
    if len(pool.cpus) < demand.learners + demand.collectors:
        return _deal_too_few(pool, demand)
    return _deal_common(pool, demand, max_learner_cores)


def _deal_common(pool: Pool, demand: Demand, max_learner_cores: int) -> Seats:
    units, split = cpu_slots(pool.cores, demand.learners + demand.collectors)
    notes = [f"{pool.name}: fewer cores than workers, so SMT siblings are separated"] if split else []
    size = min(max_learner_cores, learner_cores(len(units), demand))
    first = size * demand.learners
    learners = [flatten(units[i * size : (i + 1) * size]) for i in range(demand.learners)]
    collectors, left = deal_collectors(units[first:], demand, pool.name)
    evaluator = flatten(left[:MAX_EVALUATOR_CORES]) if left and demand.evaluator else None
    unused = len(flatten(left)) - len(evaluator or ())
    if unused:
        notes.append(f"{pool.name}: {unused} CPU(s) left to the system, so that its collectors are alike")
    return Seats(tuple(learners), collectors, evaluator=evaluator, notes=tuple(notes))


def deal_collectors(
    units: Sequence[Core], demand: Demand, where: str
) -> tuple[tuple[tuple[int, ...], ...], Sequence[Core]]:
    """Chunks units by the collector's index, equally: a generation is as slow as its slowest shard.

    Returns:
        A CPU list each, and the units left over.
    """
    count = demand.collectors
    if demand.cpus_per_collector is not None:
        return _exact_collectors(units, count, demand.cpus_per_collector, where)
    each = len(units) // count
    if demand.evaluator and len(units) == each * count and each >= 4:
        each -= 1  # room for the evaluator
    chunks = tuple(flatten(units[i * each : (i + 1) * each]) for i in range(count))
    return chunks, units[each * count :]


def _exact_collectors(
    units: Sequence[Core], count: int, each: int, where: str
) -> tuple[tuple[tuple[int, ...], ...], Sequence[Core]]:
    there = len(flatten(units))
    if each * count > there:
        most = there // count
        hint = f"; at most {most} each is possible" if most else ""
        raise RequestError(
            f"cpus_per_collector={each}: {where} has {there} CPU(s) for {count} collector(s){hint}",
            {"cpus_per_collector": [most]} if most else None,
        )
    whole = _whole_cores(units, count, each)
    if whole is not None:
        return whole
    flat = [cpu for unit in units for cpu in unit]
    chunks = tuple(tuple(sorted(flat[i * each : (i + 1) * each])) for i in range(count))
    return chunks, [(cpu,) for cpu in flat[each * count :]]


def _whole_cores(
    units: Sequence[Core], count: int, each: int
) -> tuple[tuple[tuple[int, ...], ...], Sequence[Core]] | None:
    """Gives every collector cores of its own until it has enough CPUs; None where there are too few."""
    chunks: list[tuple[int, ...]] = []
    position = 0
    for _ in range(count):
        cpus: list[int] = []
        while len(cpus) < each:
            if position == len(units):
                return None
            cpus.extend(units[position])
            position += 1
        chunks.append(tuple(sorted(cpus[:each])))
    return tuple(chunks), units[position:]


def _deal_too_few(pool: Pool, demand: Demand) -> Seats:
    """Fewer CPUs than workers: learners keep one each where collectors then still have one to share."""
    if demand.cpus_per_collector is not None and demand.cpus_per_collector > 1:
        raise RequestError(
            f"cpus_per_collector={demand.cpus_per_collector}: {pool.name} has {len(pool.cpus)} CPU(s) for "
            f"{demand.learners} learner(s) and {demand.collectors} collector(s); use cpus_per_collector=1",
            {"cpus_per_collector": [1]},
        )
    flat = tuple(cpu for core in pool.cores for cpu in core)
    workers = demand.learners + demand.collectors
    head = f"{pool.name}: {len(flat)} CPU(s) for {workers} workers"
    if len(flat) > demand.learners:
        rest = tuple(sorted(flat[demand.learners :]))
        note = (
            f"{head}; each learner has one, the {demand.collectors} collectors share "
            f"CPUs {format_kernel(rest)}"
        )
        return Seats(
            tuple((cpu,) for cpu in flat[: demand.learners]),
            (rest,) * demand.collectors,
            collector_sharers=demand.collectors,
            notes=(note,),
        )
    note = f"{head}; all share CPUs {format_kernel(flat)}, one thread each"
    everything = tuple(sorted(flat))
    return Seats(
        (everything,) * demand.learners, (everything,) * demand.collectors, workers, workers, notes=(note,)
    )


def _deal_lists(pool: Pool, demand: Demand, collector_cores: Sequence[Core]) -> Seats:
    """Learners and collectors each from their own cores, which a user's lists may let overlap."""
    learners, learner_sharers = _divide(pool.cores, demand.learners)
    each = demand.cpus_per_collector
    collectors, collector_sharers = _divide(collector_cores, demand.collectors)
    if each is not None and (each > 1 or collector_sharers == 1):
        units, _ = cpu_slots(collector_cores, demand.collectors)
        collectors, _ = _exact_collectors(units, demand.collectors, each, pool.name)
        collector_sharers = 1
    both = set(pool.cpus).intersection(flatten(collector_cores))
    if not both:
        return Seats(learners, collectors, learner_sharers, collector_sharers)
    together = learner_sharers + collector_sharers
    note = f"{pool.name}: learners and collectors share CPUs {format_kernel(both)}, as the CPU lists leave it"
    return Seats(learners, collectors, together, together, notes=(note,))


def _divide(cores: Sequence[Core], workers: int) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Equal chunks, or the whole to everyone where there are fewer CPUs than workers."""
    units, _ = cpu_slots(cores, workers)
    each = len(units) // workers
    if each == 0:
        return (flatten(cores),) * workers, workers
    return tuple(flatten(units[i * each : (i + 1) * each]) for i in range(workers)), 1
