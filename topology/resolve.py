"""The only place that computes a layout: a machine and a request in, a `TrainerTopology` out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topology import cpulist
from topology.deal import MAX_EVALUATOR_CORES, Demand, Seats, deal, learner_cores
from topology.devices import resolve_inference_devices, resolve_learner_devices
from topology.divide import Counts, resolve_counts
from topology.errors import MachineError, RequestError
from topology.ipc import choose_rings, choose_weights
from topology.machine import MachineSpec
from topology.place import Wishes, place_ranks
from topology.plan import Channel, CollectorInfo, EvaluatorInfo, LearnerInfo, TrainerTopology
from topology.pools import Core, Pool, build_pools, cpu_slots, flatten, node_cores
from topology.request import TrainerRequest


@dataclass(frozen=True)
class _Ranks:
    """What is known of every local rank before CPUs are dealt; one entry a rank in each tuple."""

    devices: tuple[str, ...]
    nodes: tuple[int | None, ...]
    inference: tuple[str, ...]
    rings: tuple[Channel, ...]
    weights: tuple[Channel, ...]


def resolve_trainer_topology(machine: MachineSpec, request: TrainerRequest) -> TrainerTopology:
    """Computes who runs where.

    Raises:
        RequestError: no layout satisfies the request; the message names what would work.
        MachineError: the machine has no CPU that this process may use.
    """
    if not machine.allowed_cpus:
        raise MachineError(f"machine {machine.name!r} has no CPU that this process may use")
    devices = resolve_learner_devices(machine, request)
    counts = resolve_counts(request, len(devices.devices), learners_fixed=devices.fixed)
    wishes = Wishes(
        _wish(machine, "collector_cpu_cores", request.collector_cpu_cores),
        _wish(machine, "learner_cpu_cores", request.learner_cpu_cores),
    )
    nodes, node_notes = place_ranks(machine, devices.devices, wishes)
    inference, inference_notes = resolve_inference_devices(machine, request, devices.devices)
    rings, ring_notes = choose_rings(machine, request, devices.devices, inference)
    weights, weight_notes = choose_weights(machine, request, devices.devices, inference)
    ranks = _Ranks(devices.devices, nodes, inference, rings, weights)
    layout = _Layout(machine, request, counts, wishes, ranks)
    head = (*machine.notes, *_count_notes(request, counts), *devices.notes, *node_notes)
    tail = (*inference_notes, *ring_notes, *weight_notes)
    return layout.build(head, tail)


def _wish(machine: MachineSpec, option: str, text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    cpus = frozenset(cpulist.parse(text))
    allowed = machine.allowed_cpus
    if not cpus:
        raise RequestError(
            f"{option} is empty; leave it null, or name some of {cpulist.format_user(allowed)}"
        )
    strangers = cpus.difference(allowed)
    if strangers:
        raise RequestError(
            f"{option}={text}: this process may not use CPU {cpulist.format_user(strangers)}; "
            f"allowed are {cpulist.format_user(allowed)}"
        )
    return cpus


def _count_notes(request: TrainerRequest, counts: Counts) -> tuple[str, ...]:
    notes: list[str] = []
    if request.num_collectors is None:
        notes.append(f"collectors: {counts.num_collectors}, one a learner, the default of num_collectors")
    if counts.nnodes > 1:
        notes.append(
            f"machine {request.world.node_rank} of {counts.nnodes}: num_envs and batch_size are over all "
            "machines, num_learners and num_collectors per machine"
        )
    return tuple(notes)


class _Layout:
    """Deals CPUs pool by pool and writes the result down."""

    def __init__(
        self, machine: MachineSpec, request: TrainerRequest, counts: Counts, wishes: Wishes, ranks: _Ranks
    ) -> None:
        self.machine = machine
        self.request = request
        self.counts = counts
        self.wishes = wishes
        self.ranks = ranks
        self.per_rank = counts.num_collectors // counts.num_learners
        # One evaluator a run: it reads the mailbox of rank 0, so it lives on the first machine.
        self.wants_evaluator = request.evaluator and request.world.node_rank == 0
        self.pools, self.pool_notes = build_pools(machine, ranks.nodes, wishes)
        self.idle = self._idle_cores()
        demands = [self._demand(pool) for pool in self.pools]
        like = min(
            learner_cores(len(cpu_slots(p.cores, d.learners + d.collectors)[0]), d)
            for p, d in zip(self.pools, demands, strict=True)
        )
        self.seats = [deal(pool, d, like) for pool, d in zip(self.pools, demands, strict=True)]

    def _idle_cores(self) -> tuple[Core, ...]:
        """Cores of a node where nobody else runs; none under a quota or a user's CPU list."""
        if self.wishes.given or self.machine.cpu_budget < len(self.machine.allowed_cpus):
            return ()
        taken = {cpu for pool in self.pools for cpu in pool.cpus}
        for node in self.machine.usable_nodes:
            if taken.isdisjoint(node.cpus):
                return node_cores(self.machine, node.cpus)
        return ()

    def _demand(self, pool: Pool) -> Demand:
        return Demand(
            learners=len(pool.ranks),
            collectors=len(pool.ranks) * self.per_rank,
            on_cpu=any(self.ranks.devices[rank] == "cpu" for rank in pool.ranks),
            max_cpu_learner_cores=self.request.max_cpu_learner_cores,
            cpus_per_collector=self.request.cpus_per_collector,
            evaluator=self.wants_evaluator and not self.idle and 0 in pool.ranks,
        )

    def build(self, head: Sequence[str], tail: Sequence[str]) -> TrainerTopology:
        learners = self._learners()
        collectors = self._collectors()
        evaluator, evaluator_notes = self._evaluator()
        seat_notes = tuple(note for seats in self.seats for note in seats.notes)
        return TrainerTopology(
            learners=learners,
            collectors=collectors,
            evaluator=evaluator,
            num_envs=self.counts.num_envs,
            batch_size=self.counts.batch_size,
            world_size=self.counts.nnodes * self.counts.num_learners,
            nnodes=self.counts.nnodes,
            node_rank=self.request.world.node_rank,
            cpus_shared=self._shared(),
            mailbox_nodes=_mailboxes(learners, collectors, evaluator is not None),
            notes=(*head, *self.pool_notes, *seat_notes, *self._thread_notes(learners), *evaluator_notes,
                   *self._unused_notes(learners, collectors, evaluator), *tail),
        )  # fmt: skip

    def _seat_of(self, rank: int) -> tuple[Pool, Seats, int]:
        for pool, seats in zip(self.pools, self.seats, strict=True):
            if rank in pool.ranks:
                return pool, seats, pool.ranks.index(rank)
        raise AssertionError(f"rank {rank} is in no pool")

    def _learners(self) -> tuple[LearnerInfo, ...]:
        first = self.request.world.node_rank * self.counts.num_learners
        cpus: list[tuple[int, ...]] = []
        threads: list[int] = []
        for rank in range(self.counts.num_learners):
            _, seats, position = self._seat_of(rank)
            cpus.append(seats.learners[position])
            cores = len(node_cores(self.machine, cpus[-1]))
            threads.append(max(1, min(cores // seats.learner_sharers, self._thread_limit(rank))))
        return tuple(
            LearnerInfo(
                rank=first + rank,
                local_rank=rank,
                device=self.ranks.devices[rank],
                numa_node=self.ranks.nodes[rank],
                cpus=cpus[rank],
                threads=min(threads),
                batch_size=self.counts.batch_per_rank,
                inference_device=self.ranks.inference[rank],
            )
            for rank in range(self.counts.num_learners)
        )

    def _thread_limit(self, rank: int) -> int:
        """More threads than this help no learner; a user who names its CPUs may think otherwise."""
        if self.wishes.learners is not None or self.ranks.devices[rank] != "cpu":
            return self.machine.cpu_budget
        return min(self.request.max_cpu_learner_cores, self.machine.cpu_budget)

    def _collectors(self) -> tuple[CollectorInfo, ...]:
        counts, world = self.counts, self.request.world
        result: list[CollectorInfo] = []
        for index in range(counts.num_collectors):
            rank = index // self.per_rank
            _, seats, position = self._seat_of(rank)
            cpus = seats.collectors[position * self.per_rank + index % self.per_rank]
            width = counts.envs_per_collector
            identity = world.node_rank * counts.num_collectors + index
            result.append(
                CollectorInfo(
                    id=identity,
                    local_index=index,
                    owner=world.node_rank * counts.num_learners + rank,
                    num_envs=width,
                    env_lo=identity * width,
                    numa_node=self.ranks.nodes[rank],
                    cpus=cpus,
                    threads=max(1, min(len(cpus) // seats.collector_sharers, width)),
                    inference_device=self.ranks.inference[rank],
                    ring=self.ranks.rings[rank],
                    weights=self.ranks.weights[rank],
                )
            )
        return tuple(result)

    def _evaluator(self) -> tuple[EvaluatorInfo | None, tuple[str, ...]]:
        if not self.wants_evaluator:
            return None, ()
        if self.idle:
            cpus = flatten(self.idle[:MAX_EVALUATOR_CORES])
            node = next(node.id for node in self.machine.usable_nodes if cpus[0] in node.cpus)
            return EvaluatorInfo(node, cpus, len(cpus), False), (
                f"evaluator: on NUMA node {node}, where no other worker runs",
            )
        pool, seats, _ = self._seat_of(0)
        spare = self._spare(pool) if self.wishes.given else seats.evaluator
        if spare:
            own = EvaluatorInfo(pool.node, spare, len(spare), False)
            return own, ("evaluator: on spare CPUs beside rank 0",)
        mine = seats.collectors[: self.per_rank]
        cpus = tuple(sorted({cpu for chunk in mine for cpu in chunk}))
        why = "stays within collector_cpu_cores" if self.wishes.collectors else "no CPU to spare"
        note = f"evaluator: {why}; shares CPUs {cpulist.format_kernel(cpus)} with the collectors of rank 0"
        return EvaluatorInfo(pool.node, cpus, 1, True), (note,)

    def _spare(self, pool: Pool) -> tuple[int, ...]:
        """CPUs beside rank 0 that the user's list leaves to nobody; none where it fences collectors in."""
        if self.wishes.collectors is not None:
            return ()
        used = {cpu for seats in self.seats for cpus in (*seats.learners, *seats.collectors) for cpu in cpus}
        cores = [core for core in (*pool.cores, *(pool.collector_cores or ())) if used.isdisjoint(core)]
        return flatten(cores[:MAX_EVALUATOR_CORES])

    def _shared(self) -> bool:
        lists = [cpus for seats in self.seats for cpus in (*seats.learners, *seats.collectors)]
        return sum(map(len, lists)) > len({cpu for cpus in lists for cpu in cpus})

    def _thread_notes(self, learners: tuple[LearnerInfo, ...]) -> tuple[str, ...]:
        notes = (
            ["too few CPUs: some workers share CPUs, and will take turns on them"] if self._shared() else []
        )
        count = learners[0].threads
        alike = (
            " (every rank has the same number, so that none waits for another)" if len(learners) > 1 else ""
        )
        notes.append(f"learners compute with {count} thread(s), at most one a core{alike}")
        return tuple(notes)

    def _unused_notes(
        self,
        learners: tuple[LearnerInfo, ...],
        collectors: tuple[CollectorInfo, ...],
        evaluator: EvaluatorInfo | None,
    ) -> tuple[str, ...]:
        """Nodes whose CPUs stay idle, because a collector does not leave its owner's node."""
        used = {cpu for worker in (*learners, *collectors) for cpu in worker.cpus}
        used.update(evaluator.cpus if evaluator else ())
        homes = {pool.node for pool in self.pools}
        idle = [
            node for node in self.machine.usable_nodes if node.id not in homes and used.isdisjoint(node.cpus)
        ]
        if not idle or self.machine.cpu_budget < len(self.machine.allowed_cpus):
            return ()
        names = ", ".join(str(node.id) for node in idle)
        return (
            f"NUMA node(s) {names} stay unused: no learner is there, and collectors stay with their owner",
        )


def _mailboxes(
    learners: tuple[LearnerInfo, ...], collectors: tuple[CollectorInfo, ...], evaluator: bool
) -> tuple[tuple[int | None, int], ...]:
    """One host mailbox a node with readers, written by its lowest rank; the evaluator reads rank 0's."""
    nodes = {c.numa_node for c in collectors if c.weights == "host"}
    if evaluator:
        nodes.add(learners[0].numa_node)
    writers: dict[int | None, int] = {}
    for learner in learners:
        if learner.numa_node in nodes:
            writers.setdefault(learner.numa_node, learner.rank)
    return tuple(writers.items())
