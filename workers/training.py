"""A training from its first boot to its last end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from motrix_rl.errors import MotrixError
from motrix_rl.metrics.records import check_records
from transport import TransportError
from workers.faults import forget_spent, read_faults
from workers.launch import Launch, prepare_launch
from workers.machines import machines_of_this_run
from workers.outcome import explained, say
from workers.restarts import LearnerRestarts
from workers.supervisor import Supervisor

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig


def run_training(config: RootConfig) -> int:
    """Trains as configured; a run that a learner's fault has ended may go on from its last checkpoint.

    Returns:
        0 when the run finished or was interrupted and saved, 1 when it failed, 130 after a second Ctrl-C.

    Raises:
        UsageError: the request is wrong; nothing was started.
        TopologyError: the request does not fit the machine; nothing was started.
        MotrixError: memory or descriptors are short.
    """
    check_records(config)
    read_faults()
    machines = machines_of_this_run()
    restarts = LearnerRestarts(config.algo.trainer.async_options.max_learner_restarts)
    while True:
        launch = prepare_launch(config, machines)
        supervisor = _set_up(launch)
        code = supervisor.run()
        launch.party.leave()
        launch.start.directory.release()
        # Over several machines the launcher starts all supervisors again: `torchrun --max-restarts`.
        if machines is not None or not supervisor.learner_failed:
            return code
        why_not = restarts.another(launch.start.generation, supervisor.generation)
        if why_not is not None:
            if why_not:
                say([f"not started again: {why_not}"])
            return code
        say([f"starting again from the last checkpoint ({restarts.done} of {restarts.limit})"])
        forget_spent()
        config = config.model_copy(update={"resume": "auto", "run_dir": str(launch.start.directory.path)})


def _set_up(launch: Launch) -> Supervisor:
    try:
        return Supervisor(launch)
    except (OSError, TransportError) as fault:
        reason = f"the run cannot be set up: {explained(fault)}"
        _give_up(launch, "failed", reason)
        raise MotrixError(reason) from fault
    except KeyboardInterrupt:  # nobody has been started
        _give_up(launch, "interrupted", "interrupted by SIGINT")
        raise


def _give_up(launch: Launch, outcome: Literal["failed", "interrupted"], reason: str) -> None:
    with contextlib.suppress(MotrixError):  # on a full disk the reason is still told
        launch.start.directory.record.finish(outcome, reason)
    launch.party.tell_failed(reason)
    launch.party.leave()
