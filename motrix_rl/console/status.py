"""What the console shows: plain data that the supervisor fills in and the renderers turn into text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorkerStatus:
    """One worker as the supervisor sees it.

    Attributes:
        name: `collector-0`, `learner-0`, `evaluator`.
        role: `collector`, `learner`, `evaluator`.
        phase: What it is doing (`import`, `build`, `ready`, `collect`, ...).
        phase_seconds: For how long.
        pid: Its process; None before it has one.
        last_line: Newest line of its log.
        ready: It has said that it can begin.
        extra: A few words more (`restarted 1x`), empty for none.
    """

    name: str
    role: str
    phase: str
    phase_seconds: float = 0.0
    pid: int | None = None
    last_line: str = ""
    ready: bool = False
    extra: str = ""


@dataclass(frozen=True)
class BootStatus:
    """A run that is starting.

    Attributes:
        title: `<task>/<backend>.<algo>`.
        run_dir: The run directory, as a path a person can paste.
        elapsed_s: Since the start, seconds.
        timeout_s: The configured limit of the boot, seconds; None for none.
        workers: All workers, ready or not.
        messages: Newest notes, oldest first.
    """

    title: str
    run_dir: str
    elapsed_s: float
    workers: Sequence[WorkerStatus]
    timeout_s: float | None = None
    messages: Sequence[str] = ()


@dataclass(frozen=True)
class RunStatus:
    """A run that is going on. None means: not known yet.

    Attributes:
        title: `<task>/<backend>.<algo>`.
        run_dir: The run directory.
        elapsed_s: Since training began, seconds.
        generation: Generations admitted so far.
        total_generations: Where the run ends; None for open-ended.
        env_steps: Transitions collected so far.
        updates: Gradient updates done; `updates_due` those that should be.
        eta_s: Time left, seconds.
        return_mean: Mean return of the last `return_window` training episodes; `length_mean` their length.
        episodes: Training episodes ended so far.
        best_eval: Best evaluation return; `last_eval` the newest.
        env_steps_per_s: Transitions a second; `updates_per_s` gradient updates a second.
        utd_asked: Updates a generation as configured; `utd_kept` as measured.
        collector_budget: Share of a collector's time by activity: act, step, wait (0 to 1).
        learner_budget: Share of the learner's time: ingest, update, wait, other (0 to 1).
        ring_fill: Slots filled, mean over rings; `ring_capacity` how many there are.
        policy_lag_mean: Updates between the acting and the newest policy; `policy_lag_max` the largest.
        losses: Newest losses and the like by name.
        messages: Newest notes (`saved checkpoint <path>`), oldest first.
        workers: All workers.
        phase: What the whole run is doing (`warm-up`, `training`, `stopping`, `finished`).
    """

    title: str
    run_dir: str
    elapsed_s: float
    generation: int = 0
    total_generations: int | None = None
    env_steps: int = 0
    updates: int = 0
    updates_due: int | None = None
    eta_s: float | None = None
    return_mean: float | None = None
    return_window: int | None = None
    length_mean: float | None = None
    episodes: int = 0
    best_eval: float | None = None
    last_eval: float | None = None
    env_steps_per_s: float | None = None
    updates_per_s: float | None = None
    utd_asked: float | None = None
    utd_kept: float | None = None
    collector_budget: Mapping[str, float] = field(default_factory=dict)
    learner_budget: Mapping[str, float] = field(default_factory=dict)
    ring_fill: float | None = None
    ring_capacity: int | None = None
    policy_lag_mean: float | None = None
    policy_lag_max: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    messages: Sequence[str] = ()
    workers: Sequence[WorkerStatus] = ()
    phase: str = ""
