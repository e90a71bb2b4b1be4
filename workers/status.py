"""What the supervisor knows about a run, put together for the panel, the metrics file and the last lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.console import BootStatus, RunStatus, WorkerStatus
from motrix_rl.logs import OutputPump
from transport import Phase, WorkerSnapshot
from workers.fleet import Fleet
from workers.planning import TrainingPlan
from workers.resources import RunResources
from workers.resume import RunStart

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

#: Seconds over which rates and time budgets are taken.
RATE_WINDOW_S = 5.0
#: Seconds between two samples of that window.
SAMPLE_S = 0.5
#: Notes kept for the panel.
NOTES = 4

#: Figures among the losses that the panel has elsewhere or that do not change.
SHOWN_ELSEWHERE = frozenset({"updates_done", "target_entropy"})

COLLECTOR_BUDGET = {"act": (Phase.ACTING,), "step": (Phase.STEPPING,), "wait": (Phase.WAITING,)}
LEARNER_BUDGET = {
    "ingest": (Phase.INGESTING,),
    "update": (Phase.UPDATING,),
    "wait": (Phase.WAITING, Phase.COLLECTIVE),
    "other": (Phase.SAVING, Phase.STOPPING, Phase.READY),
}


@dataclass(frozen=True)
class Sample:
    """Counters at one instant, for rates."""

    time: float
    generation: int
    env_steps: int
    updates: int
    phase_ns: Mapping[str, Mapping[Phase, int]]


class StatusBoard:
    """Collects figures and makes the views of them. Written and read by the supervisor's main thread only."""

    def __init__(
        self,
        config: RootConfig,
        plan: TrainingPlan,
        start: RunStart,
        fleet: Fleet,
        resources: RunResources,
        output: OutputPump,
    ) -> None:
        self._config = config
        self._plan = plan
        self._start = start
        self._fleet = fleet
        self._resources = resources
        self._output = output
        self._total = config.algo.trainer.num_learning_iterations
        self._launched = time.monotonic()
        self._training_since: float | None = None
        self._figures: dict[str, Any] = {}
        self._last_eval: dict[str, Any] | None = None
        self._best_eval = start.best_return
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._window: deque[Sample] = deque()

    @property
    def booting(self) -> bool:
        """The barrier has not been released."""
        return self._training_since is None

    def started(self) -> None:
        """The barrier has been released."""
        self._training_since = time.monotonic()

    def stage(self, outcome: str) -> str:
        """Where the run is, as faults are ordered for the supervisor."""
        if self.booting:
            return "boot"
        if outcome != "running":
            return "shutdown"
        rank_0 = self._learner_row(self._resources.control.snapshot())
        if rank_0.phase is Phase.SAVING:
            return "saving"
        return "training" if rank_0.updates > 0 else "warm-up"

    def note(self, text: str) -> None:
        """A line for the panel's last rows."""
        self._notes.append(text)

    def learner_figures(self, figures: dict[str, Any]) -> None:
        """The newest figures of learner rank 0."""
        self._figures = figures

    def evaluated(self, result: dict[str, Any]) -> None:
        """The newest evaluation."""
        self._last_eval = result
        if self._best_eval is None or result["return_mean"] > self._best_eval:
            self._best_eval = result["return_mean"]
        self.note(
            f"evaluation at generation {result['generation']}: return {result['return_mean']:.1f} "
            f"+- {result['return_ci95']:.1f}{' (best so far)' if result['best'] else ''}"
        )

    # Views --------------------------------------------------------------------------------------------------

    def boot_view(self) -> BootStatus:
        """The panel while workers start."""
        return BootStatus(
            title=self._config.task,
            run_dir=self._shown_dir(),
            elapsed_s=time.monotonic() - self._launched,
            timeout_s=self._config.algo.trainer.async_options.boot_timeout_s,
            workers=self._workers(),
            messages=tuple(self._notes),
        )

    def run_view(self, outcome: str) -> RunStatus:
        """The panel while the run goes on, and its last frame."""
        rows = self._resources.control.snapshot()
        self._sample(rows)
        figures = self._figures
        rates = self._rates()
        generation = self._learner_row(rows).generation
        losses = {
            k: v for k, v in figures.get("losses", {}).items() if v is not None and k not in SHOWN_ELSEWHERE
        }
        return RunStatus(
            title=self._config.task,
            run_dir=self._shown_dir(),
            elapsed_s=time.monotonic() - (self._training_since or self._launched),
            generation=generation,
            total_generations=self._total,
            env_steps=generation * self._config.num_envs,
            updates=self._learner_row(rows).updates,
            updates_due=self._due(self._learner_row(rows).updates),
            eta_s=self._eta(generation, rates.get("generations")),
            return_mean=figures.get("return_mean"),
            return_window=figures.get("return_window"),
            length_mean=figures.get("length_mean"),
            episodes=figures.get("episodes", 0),
            best_eval=self._best_eval,
            last_eval=None if self._last_eval is None else self._last_eval["return_mean"],
            env_steps_per_s=rates.get("env_steps"),
            updates_per_s=rates.get("updates"),
            utd_asked=figures.get("utd_asked"),
            utd_kept=figures.get("utd_kept"),
            collector_budget=self._budget("collector", COLLECTOR_BUDGET),
            learner_budget=self._budget("learner", LEARNER_BUDGET),
            ring_fill=self._ring_fill(),
            ring_capacity=self._config.algo.trainer.async_options.ring_capacity,
            policy_lag_mean=figures.get("policy_lag_mean"),
            policy_lag_max=figures.get("policy_lag_max"),
            losses=losses,
            messages=tuple(self._notes),
            workers=self._workers(),
            phase=self._phase(outcome, rows),
        )

    def _due(self, updates: int) -> int | None:
        """Updates owed as of the learner's last message; None when it has done more since."""
        due = self._figures.get("updates_due")
        return due if due is not None and due >= updates else None

    def metrics_record(self) -> dict[str, Any]:
        """One record of ``metrics.jsonl``."""
        rates = self._rates()
        return {
            "kind": "train",
            **self._figures,
            "elapsed_s": time.monotonic() - (self._training_since or self._launched),
            "env_steps_per_s": rates.get("env_steps"),
            "updates_per_s": rates.get("updates"),
            "ring_fill": self._ring_fill(),
            "collector_time": self._budget("collector", COLLECTOR_BUDGET),
            "learner_time": self._budget("learner", LEARNER_BUDGET),
            "nonfinite": sum(row.nonfinite for row in self._resources.control.snapshot()),
        }

    def evaluation_record(self, result: dict[str, Any]) -> dict[str, Any]:
        """One record of ``metrics.jsonl`` for an evaluation; its keys differ from those of training."""
        since = self._training_since or self._launched
        return {
            "kind": "eval",
            "env_steps": result["generation"] * self._config.num_envs,
            "elapsed_s": time.monotonic() - since,
            "eval": dict(result),
        }

    def summary(self) -> dict[str, Any]:
        """Plain data for ``run.json``."""
        rows = self._resources.control.snapshot()
        row = self._learner_row(rows)
        return {
            "generation": row.generation,
            "updates": row.updates,
            "env_steps": row.generation * self._config.num_envs,
            "best_eval": self._best_eval,
            "last_eval": self._last_eval,
            "seconds": round(time.monotonic() - self._launched, 3),
        }

    # Pieces -------------------------------------------------------------------------------------------------

    def _shown_dir(self) -> str:
        path = self._start.directory.path
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

    def _learner_row(self, rows: Iterable[WorkerSnapshot]) -> WorkerSnapshot:
        return next(iter(rows))  # learners come first, rank 0 before all

    def _workers(self) -> tuple[WorkerStatus, ...]:
        ready = self._resources.handshake.ready_workers()
        views: list[WorkerStatus] = []
        for row in self._resources.control.snapshot():
            worker = self._fleet.workers.get(row.name)
            if worker is None:
                continue
            dead = not worker.alive and worker.exit_code != 0
            since = row.phase_age_s or time.monotonic() - worker.started_at
            views.append(
                WorkerStatus(
                    name=row.name,
                    role=worker.role,
                    phase="dead" if dead else row.phase.name.lower(),
                    phase_seconds=since,
                    pid=row.pid or None,
                    last_line=self._output.last_line(row.name),
                    ready=row.name in ready and row.phase is not Phase.DONE,
                    extra=f"restarted {worker.incarnation}x" if worker.incarnation else "",
                )
            )
        return tuple(views)

    def _phase(self, outcome: str, rows: list[WorkerSnapshot]) -> str:
        if outcome != "running":
            return "stopping" if self._fleet.living() else outcome
        return "training" if self._learner_row(rows).updates > 0 else "warm-up"

    def _ring_fill(self) -> float:
        fills = [ring.committed - ring.released for ring in self._resources.rings.values()]
        return sum(fills) / len(fills)

    def _eta(self, generation: int, rate: float | None) -> float | None:
        if not rate or self._figures.get("updates", 0) == 0:
            return None  # the warm-up is faster than what follows
        return max(0, self._total - generation) / rate

    def _sample(self, rows: list[WorkerSnapshot]) -> None:
        now = time.monotonic()
        if self._window and now - self._window[-1].time < SAMPLE_S:
            return
        learner = self._learner_row(rows)
        steps = sum(row.env_steps for row in rows if row.name.startswith("collector"))
        phases = {row.name: row.phase_ns for row in rows}
        self._window.append(Sample(now, learner.generation, steps, learner.updates, phases))
        while len(self._window) > 2 and now - self._window[0].time > RATE_WINDOW_S:
            self._window.popleft()

    def _rates(self) -> dict[str, float]:
        if len(self._window) < 2:
            return {}
        first, last = self._window[0], self._window[-1]
        seconds = last.time - first.time
        return {
            "generations": (last.generation - first.generation) / seconds,
            "env_steps": (last.env_steps - first.env_steps) / seconds,
            "updates": (last.updates - first.updates) / seconds,
        }

    def _budget(self, role: str, groups: Mapping[str, tuple[Phase, ...]]) -> dict[str, float]:
        """Shares of the window's time by activity, over all workers of a role."""
        if len(self._window) < 2:
            return {}
        first, last = self._window[0].phase_ns, self._window[-1].phase_ns
        names = [name for name in last if name.startswith(role)]
        spent = {
            group: sum(max(0, last[n][p] - first[n][p]) for n in names for p in phases)
            for group, phases in groups.items()
        }
        whole = sum(spent.values())
        return {group: value / whole for group, value in spent.items()} if whole else {}
