"""Where a run lives and where it goes on from, settled before any process starts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from motrix_rl.checkpoint import BestStore, CheckpointError, CheckpointStore, open_checkpoint
from motrix_rl.config import dump_config, load_saved
from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.runs import RunDirectory, newest_run, resolve_run
from motrix_rl.runs.atomic import replace_file
from motrix_rl.runs.lock import still_running
from motrix_rl.tasks.registry import parse_task
from topology import to_json
from topology.description import describe_machine
from workers.collector_state import collector_file
from workers.planning import TrainingPlan

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

log = logging.getLogger(__name__)

#: Settings of the agent that shape what a checkpoint holds.
SHAPES = (
    "actor_hidden_dim",
    "critic_hidden_dim",
    "num_q_networks",
    "num_atoms",
    "obs_normalization",
    "reward_scaling",
)


@dataclass(frozen=True)
class RunStart:
    """The start of one life of a run.

    Attributes:
        config: what it runs with.
        directory: where it writes.
        checkpoint: what it goes on from; None for a fresh run.
        generation: generations already admitted (0 for a fresh run).
        best_return: mean return of the best policy so far; None when there is none.
        continues: the checkpoint holds the collectors' state, and this run goes on with it to the bit.
        skipped: lines about checkpoints that could not be used.
    """

    config: RootConfig
    directory: RunDirectory
    checkpoint: Path | None
    generation: int
    best_return: float | None
    continues: bool = False
    skipped: tuple[str, ...] = ()


def prepare_run(config: RootConfig, plan: TrainingPlan) -> RunStart:
    """Makes or reopens the run directory and finds the checkpoint to go on from.

    Raises:
        UsageError: nothing to resume, the run is still going on or done or the directory is unusable.
        MotrixError: the disk refuses; no new run is left behind.
    """
    skipped: list[str] = []
    directory, checkpoint = _find_resume(config, skipped.append)
    if checkpoint is not None:
        _refuse_other_networks(config, checkpoint)
    generation = 0
    if checkpoint is not None:
        generation = int(open_checkpoint(checkpoint).metadata["generation"])
        total = config.algo.trainer.num_learning_iterations
        if generation >= total:
            raise UsageError(
                f"{checkpoint} is at generation {generation}, and the run ends at "
                f"algo.trainer.num_learning_iterations={total}; give a larger number to go on"
            )
    best = None
    if directory is None:
        task = parse_task(config.task)
        directory = RunDirectory.create(config.runs_root, task.task, task.backend, task.algo, config.run_dir)
        try:
            _begin_record(directory, config, plan, checkpoint)
        except MotrixError:
            directory.take_back()
            raise
    else:
        directory.ensure_folders()
        best = best_return(directory)
        _begin_record(directory, config, plan, checkpoint)
    return RunStart(
        config=config,
        directory=directory,
        checkpoint=checkpoint,
        generation=generation,
        best_return=best,
        continues=checkpoint is not None and _continues(config, plan, checkpoint),
        skipped=tuple(skipped),
    )


def _begin_record(
    directory: RunDirectory, config: RootConfig, plan: TrainingPlan, checkpoint: Path | None
) -> None:
    """Writes down what is about to run.

    The configuration of a life before stays until the checkpoint is known to fit this one: it is what the
    checkpoints in the directory were made with, and what one goes back to when the resume fails.

    Raises:
        MotrixError: the disk refuses.
    """
    if not directory.config_path.is_file():
        try:
            replace_file(directory.config_path, dump_config(config).encode())
        except OSError as fault:
            raise MotrixError(
                f"{directory.config_path} cannot be written: {fault.strerror or fault}"
            ) from fault
    directory.record.begin(
        machine=describe_machine(plan.machine),
        topology=to_json(plan.topology),
        extra={"resumed_from": None if checkpoint is None else str(checkpoint)},
    )


def _refuse_other_networks(config: RootConfig, checkpoint: Path) -> None:
    """A checkpoint's tensors have the shapes of its own settings; said before anything starts or is overwritten.

    Raises:
        UsageError: a setting that shapes the state differs.
    """
    saved = checkpoint.parent.parent / "config.yaml"
    if checkpoint.parent.name != "checkpoints" or not saved.is_file():
        return  # a checkpoint that was moved: the learner compares the shapes themselves
    before = load_saved(saved).algo.agent
    for name in SHAPES:
        old, new = getattr(before, name), getattr(config.algo.agent, name)
        if old != new:
            raise UsageError(f"algo.agent.{name}={new} does not fit {checkpoint}, which was saved with {old}")


def _continues(config: RootConfig, plan: TrainingPlan, checkpoint: Path) -> bool:
    """Whether everything that the deterministic mode needs is in the checkpoint, for this very layout."""
    found = open_checkpoint(checkpoint)
    collectors = {collector_file(info.id) for info in plan.topology.collectors}
    same = (
        int(found.metadata["num_envs"]) == config.num_envs
        and int(found.metadata["world_size"]) == plan.topology.world_size
        and bool(found.metadata["replay"])
        and {name for name in found.files if name.startswith("collector")} == collectors
    )
    return config.deterministic and same


def best_return(directory: RunDirectory) -> float | None:
    """Mean return of the best policy that a run directory holds; None when there is none."""
    try:
        best = BestStore(directory.best).open()
    except CheckpointError as fault:
        log.warning("the best policy so far cannot be read and will be replaced: %s", fault)
        return None
    return None if best is None else float(best.metadata["return_mean"])


def _find_resume(
    config: RootConfig, on_skip: Callable[[str], None]
) -> tuple[RunDirectory | None, Path | None]:
    """The directory to go on in (None = a new one) and the checkpoint to load (None = from the start).

    A run is gone on with in its own directory. A single checkpoint, or ``run_dir=`` beside a named run, starts
    a new one, so that nothing that lies behind that checkpoint is overwritten. ``resume=auto`` never fails for
    want of a run: it is what a job says each time it is started.
    """
    if config.resume is None:
        return None, None
    if config.resume == "auto":
        run = _automatic(config)
        if run is None:
            return None, None
        run.claim()  # before any look: of two that resume at once, one sees what the other has begun
        _refuse_running(run)
        newest = CheckpointStore(run.checkpoints, config.checkpoint.keep_last).newest_valid(on_skip)
        return run, None if newest is None else newest.path
    resolved = resolve_run(config.resume, config.runs_root)
    run = resolved.run_dir
    if resolved.checkpoint is None and config.run_dir is None:
        run.claim()
    _refuse_running(run)
    if resolved.checkpoint is not None:
        return None, open_checkpoint(resolved.checkpoint).path
    skipped: list[str] = []
    newest = CheckpointStore(run.checkpoints, config.checkpoint.keep_last).newest_valid(skipped.append)
    for line in skipped:
        on_skip(line)
    if newest is None:
        why = f" ({'; '.join(skipped)})" if skipped else ""
        raise UsageError(f"{run.path} has no checkpoint to resume from{why}; start again without resume")
    return (None if config.run_dir is not None else run), newest.path


def _automatic(config: RootConfig) -> RunDirectory | None:
    """The run that ``resume=auto`` means: that in ``run_dir``, else the newest of the task; None = none yet."""
    if config.run_dir is not None:
        run = RunDirectory(Path(config.run_dir).expanduser())
        return run if run.holds_run() else None
    task = parse_task(config.task)
    return newest_run(config.runs_root, task.task, task.backend, task.algo, with_checkpoint=True)


def _refuse_running(run: RunDirectory) -> None:
    runner = run.record.runner()
    if runner is not None:
        raise UsageError(still_running(run.path, runner))
