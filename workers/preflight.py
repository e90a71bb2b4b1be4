"""What is looked at before anything of a run is made: short resources, each one line with what to do."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from motrix_rl.runs.limits import check_limits, check_storage, nearest_existing
from workers.faults import check_workers, read_faults
from workers.planning import TrainingPlan, require_room
from workers.resources import worker_names

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

#: Descriptors that the supervisor holds for itself, and for each worker.
FILES_OWN, FILES_A_WORKER = 48, 16
MIB = 1 << 20


def check_before_start(config: RootConfig, plan: TrainingPlan) -> tuple[str, ...]:
    """Refuses what cannot work, and says what may not.

    Returns:
        One line for each thing that is short.

    Raises:
        UsageError: faults are ordered that cannot be carried out.
        TopologyError: the run does not fit into memory.
    """
    require_room(plan)
    workers = worker_names(plan)
    check_workers(read_faults(), workers)
    needed = FILES_OWN + FILES_A_WORKER * len(workers)
    allow_files(needed)
    findings = [*check_limits(needed), *check_storage(config.run_dir or config.runs_root)]
    lines = [f"{f.what}: {f.advice}" for f in findings if f.level == "warning"]
    return (*lines, *_checkpoint_room(config, plan))


def allow_files(needed: int) -> None:
    """Raises this process's limit on open files, as far as it may, where it is below the need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _checkpoint_room(config: RootConfig, plan: TrainingPlan) -> list[str]:
    """A line where the disk does not hold the checkpoints that are to be kept, and one being written."""
    kept = config.checkpoint.keep_last + 1
    one = plan.request.learner_bytes + (plan.request.replay_bytes if config.checkpoint.save_replay else 0)
    root = Path(config.run_dir or config.runs_root).expanduser().absolute()
    free = shutil.disk_usage(nearest_existing(root)).free
    if free >= kept * one:
        return []
    return [
        f"disk: {free / MIB:.0f} MiB free, and {kept} checkpoints take up to {kept * one / MIB:.0f} MiB:"
        " free some, choose another place with runs_root=..., or keep fewer with checkpoint.keep_last=1"
    ]
