"""What the boots of all workers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motrix_rl.envs.base import BatchEnv
from motrix_rl.tasks.registry import make_env, parse_task
from transport import Phase, WorkerBoard
from workers.wiring import WorkerContext

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig


def make_worlds(
    config: RootConfig, num_envs: int, *, seed: int, num_threads: int, first_world: int = 0
) -> BatchEnv:
    """A worker's own worlds of the run's task.

    Args:
        config: the run.
        num_envs: worlds.
        seed: of their random streams.
        num_threads: threads that step them.
        first_world: index of the first of them within the run.

    Raises:
        UsageError: the task cannot be made.
    """
    task = parse_task(config.task)
    return make_env(
        task.task,
        task.backend,
        num_envs,
        seed=seed,
        num_threads=num_threads,
        options=config.env,
        first_world=first_world,
    )


def start_together(context: WorkerContext, board: WorkerBoard) -> bool:
    """Says that this worker is ready, and waits until everybody is; False when stop is raised first."""
    board.set_phase(Phase.READY)
    context.handshake.mark_ready(context.name, context.incarnation)
    return context.handshake.wait_released(context.stop, barrier=context.barrier)
