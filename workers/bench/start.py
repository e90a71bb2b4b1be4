"""Where the seconds go from the command to the first update."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transport import Phase
from workers.bench.figures import machine_line
from workers.bench.real_run import RealRun
from workers.decision import warmup_generations

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig


@dataclass(frozen=True)
class WorkerStart:
    """One worker's way to readiness, seconds: of the interpreter, of imports, of building, and since its spawn."""

    name: str
    interpreter_s: float
    importing_s: float
    building_s: float
    ready_s: float


@dataclass(frozen=True)
class StartReport:
    """Seconds of each step, one after another; they add up to `total_s`.

    Attributes:
        steps: by name, in order.
        workers: how the workers spent the step `workers`, in which they start side by side.
        warmup_generations: generations that act at random before the first update.
    """

    machine: str
    task: str
    steps: dict[str, float]
    workers: tuple[WorkerStart, ...]
    warmup_generations: int

    @property
    def total_s(self) -> float:
        return sum(self.steps.values())

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "machine": self.machine,
            "task": self.task,
            "total_s": self.total_s,
            "steps_s": self.steps,
            "workers": [vars(worker) for worker in self.workers],
            "warmup_generations": self.warmup_generations,
        }


def process_age_s() -> float:
    """Seconds since this process was started, to a hundredth."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def measure_start(config: RootConfig) -> StartReport:
    """Starts a run and follows it to its first update.

    The first step, `command`, counts from the start of this very process: call this first of all.

    Raises:
        UsageError, TopologyError: the request is wrong, or does not fit the machine.
        MotrixError: a worker failed.
    """
    steps = {"command": process_age_s()}
    clock = time.perf_counter()

    def step(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        steps[name] = now - clock
        clock = now

    with RealRun(config, evaluating=True) as run:  # which takes its part of the cores
        step("plan")
        machine = machine_line(run.plan.machine)
        run.start()
        step("spawn")
        ready = _wait_ready(run)
        step("workers")
        run.release()
        agent = config.algo.agent
        warmup = warmup_generations(agent.learning_starts, config.num_envs, agent.n_step)
        run.wait_for(lambda: run.learner().generation >= warmup, "have not passed the warm-up")
        step("warm-up")
        run.wait_learning()
        step("first update")
        return StartReport(machine, config.task, steps, ready, warmup)


def _wait_ready(run: RealRun) -> tuple[WorkerStart, ...]:
    found: dict[str, WorkerStart] = {}

    def all_ready() -> bool:
        now = time.monotonic()
        waiting = run.crew.not_ready()
        for row in run.resources.control.snapshot():
            worker = run.fleet.workers.get(row.name)  # none: the evaluator, which starts once all are ready
            if worker is None or row.name in waiting or row.name in found:
                continue
            since = now - worker.started_at
            importing, building = (row.phase_ns[phase] / 1e9 for phase in (Phase.IMPORTING, Phase.BUILDING))
            found[row.name] = WorkerStart(
                row.name, max(0.0, since - importing - building), importing, building, since
            )
        return not waiting

    run.wait_for(all_ready, "are not ready")
    return tuple(found.values())
