"""Faults to order: makes one worker misbehave at a chosen moment, so that a user's report can be replayed.

``MOTRIX_RL_FAULT=kill:collector-0:stepping:20`` kills collector 0 when it enters the phase ``stepping`` for the
20th time. Several faults are separated by ``;``. A fault is ``KIND:WORKER:PHASE[:NTH[:SECONDS]]``:

- KIND: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``raise``, ``exit`` (code 3), ``slow`` (sleeps SECONDS, 1 unless
  given), ``nan`` (a collector: one observation of its first world; a learner: the gradient of one step),
  ``stall`` (waits for ever, with signs of life: what a lost wake-up looks like).
- WORKER: its name; ``collector-0*`` means every life of it, not only the first. ``supervisor`` is the parent.
- PHASE: a phase of the control block, such as ``building``, ``stepping``, ``updating``, ``saving``; of the
  supervisor ``boot``, ``warm-up``, ``training``, ``saving`` (while rank 0 saves) or ``shutdown``.
- NTH: which occurrence, from 1; ``5+`` means the fifth and every one after it. ``slow`` is every one unless given.

Without the variable there is nothing here that a worker would run.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from motrix_rl.errors import UsageError, did_you_mean
from transport import ControlBlock, Phase, WorkerBoard

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.flat import FlatGroup, Reducer
    from motrix_rl.envs.base import BatchEnv, Float32, StepBuffers

log = logging.getLogger(__name__)

VARIABLE = "MOTRIX_RL_FAULT"
SUPERVISOR = "supervisor"
KINDS = ("kill", "stop", "raise", "exit", "slow", "nan", "stall")
SUPERVISOR_PHASES = ("boot", "warm-up", "training", "saving", "shutdown")
#: A worker's board exists only after it has started, and its first phase is set, not entered.
WORKER_PHASES = tuple(phase.name.lower() for phase in Phase if phase is not Phase.STARTING)


class OrderedFaultError(RuntimeError):
    """The exception of the kind ``raise``."""


@dataclass(frozen=True)
class Fault:
    """One order.

    Attributes:
        kind: what happens.
        worker: to whom.
        phase: when: at the entry into this phase.
        nth: at which entry, from 1.
        onward: at every entry after it too.
        seconds: how long ``slow`` sleeps.
        every_life: also in restarted workers.
    """

    kind: str
    worker: str
    phase: str
    nth: int
    onward: bool
    seconds: float
    every_life: bool


def read_faults(environment: Mapping[str, str] = os.environ) -> tuple[Fault, ...]:
    """The faults that are ordered; none where the variable is not set.

    Raises:
        UsageError: an order cannot be understood.
    """
    orders = environment.get(VARIABLE, "").split(";")
    return tuple(_parse(order.strip()) for order in orders if order.strip())


def forget_spent(environment: MutableMapping[str, str] = os.environ) -> None:
    """Before a run boots again: leaves only the faults that are ordered for every life."""
    orders = [order for order in environment.get(VARIABLE, "").split(";") if "*" in order]
    if VARIABLE in environment:
        environment[VARIABLE] = ";".join(orders)


def check_workers(faults: Sequence[Fault], workers: Sequence[str]) -> None:
    """Refuses orders for workers that a run does not have.

    Raises:
        UsageError: naming the nearest that it has.
    """
    for fault in faults:
        names = [*workers, SUPERVISOR]
        if fault.worker not in names:
            raise UsageError(
                f"{VARIABLE}: this run has no worker '{fault.worker}'{did_you_mean(fault.worker, names)}"
            )


def _parse(order: str) -> Fault:
    words = order.split(":")
    if not 3 <= len(words) <= 5:
        raise UsageError(f"{VARIABLE}: '{order}' is not KIND:WORKER:PHASE[:NTH[:SECONDS]]")
    kind, worker, phase = words[:3]
    if kind not in KINDS:
        raise UsageError(f"{VARIABLE}: '{kind}' is no kind of fault{did_you_mean(kind, KINDS)}")
    name = worker.removesuffix("*")
    phases = SUPERVISOR_PHASES if name == SUPERVISOR else WORKER_PHASES
    if phase not in phases:
        raise UsageError(f"{VARIABLE}: '{phase}' is no phase of {name}{did_you_mean(phase, phases)}")
    if kind == "nan" and not name.startswith(("collector-", "learner-")):
        raise UsageError(f"{VARIABLE}: '{order}': only collectors and learners handle numbers")
    if kind == "stall" and name == SUPERVISOR:
        raise UsageError(f"{VARIABLE}: '{order}': the supervisor waits for nobody")
    nth = re.fullmatch(r"([1-9][0-9]*)(\+?)", words[3] if len(words) > 3 else "1+" if kind == "slow" else "1")
    if nth is None:
        raise UsageError(f"{VARIABLE}: '{words[3]}' is not an occurrence such as 1, 20 or 20+")
    seconds = words[4] if len(words) > 4 else "1"
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", seconds) is None:
        raise UsageError(f"{VARIABLE}: '{seconds}' is not a number of seconds")
    onward = nth[2] == "+"
    return Fault(kind, name, phase, int(nth[1]), onward, float(seconds), worker.endswith("*"))


class Counted:
    """Counts the entries into phases and says which faults are due."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = list(faults)
        self._entries = dict.fromkeys((fault.phase for fault in faults), 0)

    def enter(self, phase: str) -> list[Fault]:
        """The faults due at this entry."""
        if phase not in self._entries:
            return []
        self._entries[phase] += 1
        count = self._entries[phase]
        return [
            fault
            for fault in self._faults
            if fault.phase == phase and (count == fault.nth or (fault.onward and count > fault.nth))
        ]


class FaultBoard(WorkerBoard):
    """A worker's board whose phases misbehave as ordered."""

    def __init__(self, control: ControlBlock, worker: str, incarnation: int, faults: Sequence[Fault]) -> None:
        plain = control.board(worker, incarnation)
        super().__init__(plain._row, incarnation)
        self._counted = Counted(faults)
        self._poison = Poison()
        if any(fault.kind == "nan" for fault in faults):
            self._poison.place(worker)

    def set_phase(self, phase: Phase) -> None:
        """Enters the phase, then does what is due in it: others see where it happened."""
        super().set_phase(phase)
        for fault in self._counted.enter(phase.name.lower()):
            if fault.kind == "nan":
                log.warning("ordered fault: nan from phase %s on", fault.phase)
                self._poison.arm(fault.onward)
            elif fault.kind == "stall":
                log.warning("ordered fault: stall in phase %s", fault.phase)
                self._stall()
            else:
                misbehave(fault)

    def _stall(self) -> None:
        super().set_phase(Phase.WAITING)
        while True:
            self.beat()
            time.sleep(0.5)


def board_for(control: ControlBlock, worker: str, incarnation: int) -> WorkerBoard:
    """The board of one life of a worker: a plain one, unless a fault is ordered for it."""
    faults = [
        fault for fault in read_faults() if fault.worker == worker and (incarnation == 0 or fault.every_life)
    ]
    return FaultBoard(control, worker, incarnation, faults) if faults else control.board(worker, incarnation)


class SupervisorFaults:
    """The parent's own faults; its phases are entered once each, whatever goes on in between.

    Args:
        faults: all that were ordered.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._counted = Counted([fault for fault in faults if fault.worker == SUPERVISOR])
        self._phase = ""

    def enter(self, phase: str) -> None:
        """Called at every turn of the supervisor's loop."""
        if phase != self._phase:
            self._phase = phase
            for fault in self._counted.enter(phase):
                misbehave(fault)


def misbehave(fault: Fault) -> None:
    """Does what was ordered.

    Raises:
        OrderedFaultError: for the kind ``raise``.
    """
    log.warning("ordered fault: %s in phase %s", fault.kind, fault.phase)
    match fault.kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise OrderedFaultError(f"ordered by {VARIABLE} in phase {fault.phase}")
        case "exit":
            os._exit(3)
        case "slow":
            time.sleep(fault.seconds)
        case _:
            raise AssertionError(f"no such kind: {fault.kind}")


class Poison:
    """Puts a number that is not one where the next check of a worker's numbers must find it."""

    def __init__(self) -> None:
        self._armed = False
        self._onward = False

    def arm(self, onward: bool) -> None:
        """The next number, or all from now on."""
        self._armed, self._onward = True, self._onward or onward

    def _taken(self) -> bool:
        armed, self._armed = self._armed, self._onward
        return armed

    def place(self, worker: str) -> None:
        """Reaches between the numbers and their check; in the process of the ordered worker alone."""
        self._place_in_environment() if worker.startswith("collector-") else self._place_in_gradients()

    def _place_in_environment(self) -> None:
        from motrix_rl.envs.base import BatchEnv

        check, taken = BatchEnv._cut_nonfinite, self._taken

        def poisoned(self: BatchEnv, action: Float32, out: StepBuffers) -> None:
            if taken():
                out.obs[0, 0] = float("nan")
            check(self, action, out)

        BatchEnv._cut_nonfinite = poisoned

    def _place_in_gradients(self) -> None:
        from motrix_rl.algorithms.fastsac.flat import FlatGroup

        reduce, taken = FlatGroup.reduce, self._taken

        def poisoned(self: FlatGroup, reducer: Reducer | None) -> None:
            if taken():
                self.grad[0] = float("nan")
            reduce(self, reducer)

        FlatGroup.reduce = poisoned
