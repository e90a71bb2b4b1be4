"""Where the speed of a training goes: each stage alone, then all together, on the same CPUs in one run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topology import CollectorInfo, LearnerInfo
from transport import ControlBlock, Ring, StopSignal, WeightMailbox
from workers.bench.figures import Figure, figure, machine_line
from workers.bench.processes import BenchProcess, BenchProcesses
from workers.bench.real_run import EndToEnd, RealRun
from workers.bench.stands import (
    CollectorShare,
    EnvironmentStand,
    LearnerShare,
    LearnerStand,
    StandSetup,
    collect,
)
from workers.planning import TrainingPlan
from workers.resources import slot_layout
from workers.wiring import collector_name

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

FLOAT = 4
#: Seconds beyond ten times its own that a measurement may take: one step may be long.
ANSWER_S = 60.0
STAGES = ("env_only", "collector_only", "learner_only")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class StageReport:
    """What was measured. Rates are environment steps a second over all collectors, unless they say updates.

    Attributes:
        machine: the machine, in one line.
        task: full name of the task.
        layout: who ran where, in words.
        physics_only: MuJoCo's own step calls within `env_only`, same threads, same states; None for an
            environment that is not stepped by MuJoCo's batch.
        env_only: the environments with random actions.
        inference_only: the actor's actions for the same environments, on the same threads.
        collector_only: collectors, their rings emptied at once.
        env_acted: the environments with the actor's actions, whose states are a collector's.
        collector_share: collector_only as a share of what `env_acted` and `inference_only`, done by turns with
            nothing between them, would give; round by round.
        learner_updates: updates a second of the slowest rank, from a filled replay, without collectives.
        learner_only: the same as environment steps: at strict UTD, num_updates of them belong to a generation.
        end_to_end: the whole run.
        end_to_end_updates: its updates a second.
        ratio: end_to_end / min(env_only, collector_only, learner_only), round by round.
        learner_bound: the ratio to the update rate means nothing (utd_mode is learner_bound).
        transitions: transitions in the replay of `learner_only`.
    """

    machine: str
    task: str
    layout: str
    num_envs: int
    num_updates: int
    physics_only: Figure | None
    env_only: Figure
    inference_only: Figure
    env_acted: Figure
    collector_only: Figure
    collector_share: Figure
    learner_updates: Figure
    learner_only: Figure
    end_to_end: Figure
    end_to_end_updates: Figure
    ratio: Figure
    learner_bound: bool
    transitions: int

    def stages(self) -> dict[str, Figure]:
        """The stages whose slowest one limits the run."""
        return {name: getattr(self, name) for name in STAGES}

    def limit(self) -> str:
        """Name of the slowest stage."""
        return min(self.stages().items(), key=lambda item: item[1].median)[0]

    def shares(self) -> dict[str, float]:
        """End to end as a share of each stage alone."""
        return {name: self.end_to_end.median / stage.median for name, stage in self.stages().items()}

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        figures = (
            "env_only", "inference_only", "env_acted", "collector_only", "collector_share", "learner_only",
            "learner_updates", "end_to_end", "end_to_end_updates",
        )  # fmt: skip
        return {
            "machine": self.machine,
            "task": self.task,
            "layout": self.layout,
            "num_envs": self.num_envs,
            "num_updates": self.num_updates,
            "learner_bound": self.learner_bound,
            "replay_transitions": self.transitions,
            "physics_only": None if self.physics_only is None else self.physics_only.data(),
            **{name: getattr(self, name).data() for name in figures},
            "ratio": self.ratio.data(),
            "limit": self.limit(),
            "share_of": self.shares(),
            "noise": max(stage.spread for stage in (*self.stages().values(), self.end_to_end)),
        }


def measure_stages(config: RootConfig, seconds: float, rounds: int, tell: Tell) -> StageReport:
    """Measures every stage `rounds` times, one after another in each round, so that all see the same machine.

    Args:
        config: what is trained; evaluation and checkpoints are left out.
        seconds: of each measurement.
        rounds: measurements of each stage.
        tell: told what goes on, in single lines.

    Raises:
        UsageError, TopologyError: the request is wrong, or does not fit the machine.
        MotrixError: a process failed.
    """
    timeout_s = config.algo.trainer.async_options.boot_timeout_s
    with RealRun(config) as run:
        line = machine_line(run.plan.machine)
        tell("starting the run that is measured, up to its first update")
        run.start()
        run.wait_released()
        run.wait_learning()
        run.hold(True)
        with Stands(config, run.plan) as stands:
            tell("starting the stages")
            stands.wait_ready(timeout_s)
            return _rounds(config, run, stands, seconds, rounds, line, tell)


@dataclass(frozen=True)
class CollectingApart:
    """Environment steps a second of each thing that a collector does.

    Attributes:
        stepping: the environments, with random actions.
        physics: MuJoCo's step call within them; None where it is not MuJoCo's batch that steps.
        inference: the actor.
        acted: the environments, with the actor's actions.
        by_turns: of these steps and inference by turns, if nothing else took time.
    """

    stepping: float
    physics: float | None
    inference: float
    acted: float
    by_turns: float


class Stands:
    """The stages' own processes, each where its worker is in a run.

    Args:
        config: what is trained.
        plan: who runs where.
        collecting: start environments and collectors too; without them only a learner's calls answer.
    """

    def __init__(self, config: RootConfig, plan: TrainingPlan, *, collecting: bool = True) -> None:
        self._topology = plan.topology
        self._plan, self._config = plan, config
        self._processes = BenchProcesses()
        self._stop = StopSignal("bench")
        names = [collector_name(info.id) for info in self._topology.collectors]
        self._control = ControlBlock.create(names)
        capacity = config.algo.trainer.async_options.ring_capacity
        self._rings = {
            info.id: Ring.create(slot_layout(plan, info), capacity) for info in self._topology.collectors
        }
        self._mailboxes = {
            node: WeightMailbox.create(FLOAT * plan.policy_size) for node, _ in self._topology.mailbox_nodes
        }
        collectors = self._topology.collectors if collecting else ()
        self._learners = [self._learner(info) for info in self._topology.learners]
        self._environments = [self._environment(info) for info in collectors]
        for info in collectors:
            self._collector(info)

    def _setup(self, threads: int) -> StandSetup:
        return StandSetup(self._config, self._plan.env_spec, threads, os.getpid())

    def _environment(self, info: CollectorInfo) -> BenchProcess:
        arguments = {
            "lo": info.env_lo,
            "hi": info.env_lo + info.num_envs,
            "device": info.inference_device,
        }
        return self._processes.stand(
            f"environments {info.id}", EnvironmentStand, self._setup(info.threads), arguments, **_where(info)
        )

    def _learner(self, info: LearnerInfo) -> BenchProcess:
        owned = [c for c in self._topology.collectors if c.owner == info.rank]
        share = LearnerShare(
            device=info.device,
            num_envs=sum(c.num_envs for c in owned),
            batch_size=info.batch_size,
            rings={c.id: self._rings[c.id] for c in owned},
            mailboxes=tuple(
                self._mailboxes[node] for node, rank in self._topology.mailbox_nodes if rank == info.rank
            ),
        )
        return self._processes.stand(
            f"learner {info.rank}", LearnerStand, self._setup(info.threads), {"share": share}, **_where(info)
        )

    def _collector(self, info: CollectorInfo) -> None:
        node = info.numa_node if info.numa_node in self._mailboxes else next(iter(self._mailboxes))
        share = CollectorShare(
            index=info.id,
            lo=info.env_lo,
            hi=info.env_lo + info.num_envs,
            ring=self._rings[info.id],
            mailbox=self._mailboxes[node],
            control=self._control,
            stop=self._stop,
            device=info.inference_device,
        )
        kwargs = {"setup": self._setup(info.threads), "share": share}
        self._processes.start(f"collector {info.id}", collect, kwargs, **_where(info))

    def wait_ready(self, timeout_s: float) -> None:
        """Until every stage is built."""
        self._processes.wait_ready(timeout_s)

    def collecting_apart(self, seconds: float) -> CollectingApart:
        """What collectors do, each part alone, all collectors' shards together."""
        results = _all(self._environments, "run", {"seconds": seconds})
        acting = _all(self._environments, "act", {"seconds": seconds})
        acted = _all(self._environments, "step_as_acted", {"seconds": seconds})
        stepping = [result["steps_per_s"] for result in results]
        physics = [result["physics_per_s"] for result in results]
        return CollectingApart(
            stepping=sum(stepping),
            physics=None if None in physics else sum(physics),
            inference=sum(acting),
            acted=sum(acted),
            by_turns=sum(1.0 / (1.0 / step + 1.0 / act) for step, act in zip(acted, acting, strict=True)),
        )

    def collector_only(self, seconds: float) -> float:
        """Environment steps a second that arrive while the rings are emptied at once."""
        widths = {info.id: info.num_envs for info in self._topology.collectors}
        results = _all(self._learners, "drain", {"seconds": seconds})
        return sum(rate * widths[index] for rates in results for index, rate in rates.items())

    def learner_only(self, seconds: float) -> float:
        """Updates a second of the slowest rank."""
        return min(_all(self._learners, "updates", {"seconds": seconds}))

    def learner_call(self, method: str, **kwargs: Any) -> Any:
        """One call of rank 0's stand."""
        return _all(self._learners[:1], method, kwargs)[0]

    def __enter__(self) -> Stands:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._processes.__exit__(None, None, None)
        for channel in (*self._rings.values(), *self._mailboxes.values(), self._control, self._stop):
            channel.close()


def _where(info: CollectorInfo | LearnerInfo) -> dict[str, Any]:
    return {"cpus": info.cpus, "numa_node": info.numa_node, "threads": info.threads}


def _all(processes: list[BenchProcess], method: str, kwargs: dict[str, Any]) -> list[Any]:
    """The same call in several processes at once."""
    for process in processes:
        process.begin(method, **kwargs)
    return [process.result(ANSWER_S + 10.0 * kwargs.get("seconds", 0.0)) for process in processes]


def _rounds(
    config: RootConfig, run: RealRun, stands: Stands, seconds: float, rounds: int, machine: str, tell: Tell
) -> StageReport:
    apart: list[CollectingApart] = []
    collectors: list[float] = []
    updates: list[float] = []
    whole: list[EndToEnd] = []
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        apart.append(stands.collecting_apart(seconds))
        collectors.append(stands.collector_only(seconds))
        updates.append(stands.learner_only(seconds))
        whole.append(run.measure(seconds))
    agent = config.algo.agent
    per_update = config.num_envs / agent.num_updates
    learner_bound = config.algo.trainer.async_options.utd_mode != "strict"
    environments = [part.stepping for part in apart]
    physics = [part.physics for part in apart if part.physics is not None]
    limits = zip(environments, collectors, [rate * per_update for rate in updates], strict=True)
    ratios = [
        done.steps_per_s / min(limit[:2] if learner_bound else limit)
        for done, limit in zip(whole, limits, strict=True)
    ]
    return StageReport(
        machine=machine,
        task=config.task,
        layout=layout_words(run.plan),
        num_envs=config.num_envs,
        num_updates=agent.num_updates,
        physics_only=figure(physics) if len(physics) == len(apart) else None,
        env_only=figure(environments),
        inference_only=figure([part.inference for part in apart]),
        env_acted=figure([part.acted for part in apart]),
        collector_only=figure(collectors),
        collector_share=figure([rate / part.by_turns for rate, part in zip(collectors, apart, strict=True)]),
        learner_updates=figure(updates),
        learner_only=figure(updates).times(per_update),
        end_to_end=figure([done.steps_per_s for done in whole]),
        end_to_end_updates=figure([done.updates_per_s for done in whole]),
        ratio=figure(ratios),
        learner_bound=learner_bound,
        transitions=stands.learner_call("transitions"),
    )


def layout_words(plan: TrainingPlan) -> str:
    """Who runs where, in one line."""
    topology = plan.topology
    learners = [
        f"learner {info.rank} on {info.device}, CPUs {_list(info.cpus)}" for info in topology.learners
    ]
    collectors = [
        f"collector {info.id} with {info.num_envs} environments, CPUs {_list(info.cpus)}"
        for info in topology.collectors
    ]
    shared = ["some CPUs are shared"] if topology.cpus_shared else []
    return "; ".join([*learners, *collectors, *shared])


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus)) or "any"
