"""What is settled before a supervisor makes anything: layout, run directory, and who else takes part."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.runs import RunDirectory
from topology import TopologyError, World
from workers.agreement import shared_settings
from workers.ipc_check import with_working_ipc
from workers.machines import Machines, Meeting, NoMeetingError, SettingsDifferError, listen
from workers.planning import TrainingPlan, make_plan
from workers.preflight import check_before_start
from workers.resume import RunStart, prepare_run

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

#: Seconds in which the other machines must be reached to hear that this one takes no part.
TELL_S = 5.0


@dataclass(frozen=True)
class Party:
    """Who takes part in a run beside this supervisor's own workers.

    Attributes:
        leads: this is machine 0, which writes the run's record.
        group: host and port where several ranks meet; None for a single rank.
        listener: the socket that listens there, on machine 0.
        meeting: where the supervisors of several machines agree; None on a single machine.
    """

    leads: bool = True
    group: tuple[str, int] | None = None
    listener: socket.socket | None = None
    meeting: Meeting | None = None

    def all_ready(self) -> bool:
        """Whether, this machine being ready, everybody can start."""
        return self.meeting is None or self.meeting.all_ready()

    def failure(self) -> str | None:
        """Which machine has failed to start, and why; None while none has."""
        return None if self.meeting is None else self.meeting.failure()

    def tell_failed(self, reason: str) -> None:
        """The other machines need not wait for this one."""
        if self.meeting is not None:
            self.meeting.tell_failed(reason)

    def leave(self) -> None:
        """At the end: others may still have to hear of a failure."""
        if self.meeting is not None:
            self.meeting.leave()


@dataclass(frozen=True)
class Launch:
    """Everything a supervisor starts from; `notes` says what was short before it."""

    plan: TrainingPlan
    start: RunStart
    party: Party
    notes: tuple[str, ...] = ()


def prepare_launch(config: RootConfig, machines: Machines | None) -> Launch:
    """Settles a run; no process has been started when it returns or raises.

    Args:
        config: the resolved configuration.
        machines: the machines of the run, or None for this one alone.

    Raises:
        UsageError: the request is wrong, or not the same on all machines.
        TopologyError: it does not fit the machine.
        MotrixError: the other machines cannot be reached, or one of them has failed.
    """
    if machines is None:
        plan = with_working_ipc(make_plan(config))
        notes = check_before_start(config, plan)
        listener = listen(None) if plan.topology.world_size > 1 else None
        group = None if listener is None else listener.getsockname()
        return Launch(plan, prepare_run(config, plan), Party(group=group, listener=listener), notes)
    meeting: Meeting | None = None
    try:
        world = World(nnodes=machines.nnodes, node_rank=machines.node_rank)
        plan = with_working_ipc(make_plan(config, world=world))
        notes = check_before_start(config, plan)
        meeting = Meeting(machines, config.algo.trainer.async_options.boot_timeout_s)
        return _launch_together(config, machines, meeting, plan, notes)
    except NoMeetingError:
        raise
    except (MotrixError, TopologyError) as fault:
        _refuse(machines, meeting, fault)
        raise


def _launch_together(
    config: RootConfig, machines: Machines, meeting: Meeting, plan: TrainingPlan, notes: tuple[str, ...]
) -> Launch:
    meeting.agree(shared_settings(config))
    if machines.restarts > 0 and config.resume is None:
        # The launcher has started the run again: it goes on from where it was.
        config = config.model_copy(update={"resume": "auto"})
    if machines.node_rank > 0:
        told = meeting.tell(None)
        party = Party(leads=False, group=tuple(told["group"]), meeting=meeting)
        return Launch(plan, _joined_start(config, told), party, notes)
    start = prepare_run(config, plan)
    listener = listen(machines)
    group = listener.getsockname()
    meeting.tell(_start_as_data(start, group))
    return Launch(plan, start, Party(group=group, listener=listener, meeting=meeting), notes)


def _refuse(machines: Machines, meeting: Meeting | None, fault: Exception) -> None:
    """Tells the other machines, if they are there, that this one takes no part."""
    try:
        meeting = meeting or Meeting(machines, TELL_S)
    except NoMeetingError:
        return
    if isinstance(fault, SettingsDifferError):
        meeting.tell_differ(str(fault))
    else:
        meeting.tell_failed(str(fault))
    meeting.leave()


def _start_as_data(start: RunStart, group: tuple[str, int]) -> dict[str, Any]:
    return {
        "run_dir": str(start.directory.path),
        "run_id": start.directory.record.read()["started_unix"],
        "checkpoint": None if start.checkpoint is None else str(start.checkpoint),
        "generation": start.generation,
        "continues": start.continues,
        "group": list(group),
    }


def _joined_start(config: RootConfig, told: dict[str, Any]) -> RunStart:
    """The start that machine 0 told, in the run directory that all machines share.

    Raises:
        UsageError: that directory is not the same one here.
    """
    directory = RunDirectory(told["run_dir"])
    if directory.record.read().get("started_unix") != told["run_id"]:
        raise UsageError(
            f"machine 0 writes to {told['run_dir']}, which this machine does not see; "
            "give a directory that all machines share: run_dir=..."
        )
    checkpoint = told["checkpoint"]
    return RunStart(
        config=config,
        directory=directory,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        generation=told["generation"],
        best_return=None,
        continues=told["continues"],
    )
