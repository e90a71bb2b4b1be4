"""The supervisor: plans a run, starts its workers, shows it, watches it, and ends it."""

from __future__ import annotations

import logging
import signal
import time
from typing import Any

from motrix_rl.config import dump_config
from motrix_rl.console import BootStatus, RunStatus, make_console
from motrix_rl.errors import MotrixError
from motrix_rl.logs import OutputPump, setup_parent_logging, tail
from motrix_rl.metrics.records import open_records
from motrix_rl.runs import RunKeeper
from transport import Phase, StopReason, TransportError
from workers.crew import Crew
from workers.error_file import write_error_file
from workers.faults import SupervisorFaults, read_faults
from workers.fleet import Fleet, Worker
from workers.interrupts import Interrupts
from workers.launch import Launch
from workers.nonfinite_share import CutShare
from workers.outcome import EXIT_INTERRUPTED_TWICE, Outcome, closing_lines, explained, say
from workers.resources import RunResources
from workers.status import StatusBoard
from workers.watchdog import BOOTING, Watchdog, by_suspicion, request_stacks

log = logging.getLogger(__name__)

#: Seconds between two frames of the panel.
FRAME_S = 0.25
#: Seconds that the rest of a run has after one of its workers failed.
FAULT_GRACE_S = 5.0

#: Seconds that a hung worker has to write its stacks.
STACKS_S = 1.0

#: Seconds in which whoever still waits at the end of a finished run leaves.
CLOSING_GRACE_S = 2.0

#: Seconds in which a victim's end waits for the culprit's.
VICTIM_GRACE_S = 2.0


class Supervisor:
    """One run, from the first spawn to the last reap.

    Args:
        launch: layout, run directory, where the run goes on from, and who else takes part.
    """

    def __init__(self, launch: Launch) -> None:
        plan, start, config = launch.plan, launch.start, launch.start.config
        self.config = config
        self.plan = plan
        self.start = start
        self.party = launch.party
        self._notes = launch.notes
        self.options = config.algo.trainer.async_options
        name = "supervisor" if launch.party.leads else f"supervisor-{plan.topology.node_rank}"
        setup_parent_logging(start.directory.log_path(name), config.logging.level, name)
        self.console = make_console(config.logging.console)
        self.output = OutputPump()
        self.fleet = Fleet(self.output, start.directory.log_path)
        self.resources = RunResources.create(
            plan,
            ring_capacity=self.options.ring_capacity,
            start_generation=start.generation,
            policy_size=plan.policy_size,
            deterministic=config.deterministic,
            group=launch.party.group,
            listener=launch.party.listener,
        )
        self.crew = Crew(config, plan, start, self.resources, self.fleet)
        self.status = StatusBoard(config, plan, start, self.fleet, self.resources, self.output)
        self.metrics = open_records(config, start.directory, self.console.note, elsewhere=launch.party.leads)
        self.watchdog = Watchdog(self.options.heartbeat_timeout_s, self.options.boot_timeout_s)
        self.interrupts = Interrupts()
        self.outcome = Outcome()
        self.generation = launch.start.generation
        self._cut_share = CutShare(config.algo.trainer.max_nonfinite_share)
        self._faults = SupervisorFaults(faults) if (faults := read_faults()) else None
        self._next_frame = 0.0
        self._stop_reason = "a worker received SIGTERM"
        self._save_fault = ""  # of the newest checkpoint, if it could not be saved
        self._keeper = RunKeeper(start.directory, self.console.note, is_owner=launch.party.leads)

    def run(self) -> int:
        """Runs to the end and returns the exit code of the command."""
        with self.interrupts.installed():
            try:
                self._boot()
                if self.outcome.kind != "running":
                    self.party.tell_failed(self.outcome.reason)
                self._supervise()
                self._shut_down()
            finally:
                self.fleet.kill_all()
                self.metrics.close()  # what was not recorded is told while there is a console
                self.console.close(self._final_view())
                summary = self.status.summary()
                self.generation = int(summary["generation"])
                self._clean_up()
        return self._conclude(summary)

    @property
    def learner_failed(self) -> bool:
        """Whether a learner's fault has ended the run, of the kind that a start from a checkpoint may heal."""
        culprit = self.fleet.workers.get(self.outcome.culprit or "")
        return (
            self.outcome.kind == "failed"
            and culprit is not None
            and culprit.role == "learner"
            and not culprit.is_final
            and self.interrupts.count == 0
        )

    def _clean_up(self) -> None:
        self.crew.sweep()
        self.resources.close()
        self.output.close()

    # Boot ---------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        for line in (*self._notes, *self.start.skipped):
            self.console.note(line)
        try:
            self.crew.start_all()
        except (OSError, TransportError) as fault:  # processes or descriptors are short: no defect
            self.outcome = Outcome("failed", f"the workers cannot be started: {explained(fault)}")
            return
        deadline = time.monotonic() + self.options.boot_timeout_s
        while self.outcome.kind == "running":
            self._tick(FRAME_S)
            waiting = self.crew.not_ready()
            if not waiting and self.party.all_ready():
                self._keeper.replace(self.start.directory.config_path, dump_config(self.config).encode())
                self.resources.handshake.release()
                self.status.started()
                if not self.crew.start_evaluator():
                    self.console.note("training goes on without evaluations")
                return
            ended = self._ended()
            if self.outcome.kind != "running":
                return  # interrupted: there is nothing to lose yet, however a worker has ended
            if why := self.party.failure():
                self.outcome = Outcome("failed", why)
            elif ended:
                self._fail(ended[0].name, f"{ended[0].name} failed while it was starting: {ended[0].cause()}")
            elif time.monotonic() > deadline:
                self._boot_took_too_long(waiting)

    def _boot_took_too_long(self, waiting: list[str]) -> None:
        # Before they are asked for their stacks, which wakes a stopped one.
        late = by_suspicion([self.fleet.workers[name] for name in waiting], self.resources.control)
        for worker, _ in late:
            request_stacks(worker)
        self._let_stacks_arrive()
        told = ", ".join(words for _, words in late) or "another machine"
        reason = f"boot took longer than boot_timeout_s={self.options.boot_timeout_s:g} s; not ready: {told}"
        self._fail(late[0][0].name if late else None, reason)

    # Running ------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while self.outcome.kind == "running":
            self._tick(FRAME_S)
            for worker in self._ended():
                self._on_exit(worker)
            self._start_due()
            self._look_for_the_hung()
            stopped = self.resources.stop.is_set()  # then the next turn says why
            if self.crew.learners_done() and self.outcome.kind == "running" and not stopped:
                self.outcome = Outcome("finished")

    def _ended(self) -> list[Worker]:
        """Workers that have ended, culprits before victims.

        A rank whose peer died fails in its next collective, sometimes before the peer has been reaped; so a
        victim's end is held back for a moment in which the culprit's is seen.
        """
        ended = self.fleet.reap()
        if ended and all(worker.is_victim for worker in ended):
            end = time.monotonic() + VICTIM_GRACE_S
            while time.monotonic() < end and all(worker.is_victim for worker in ended):
                self._tick(0.1)
                ended += self.fleet.reap()
        return sorted(ended, key=lambda worker: worker.is_victim)

    def _on_exit(self, worker: Worker) -> None:
        if worker.exit_code == 0 and self.crew.may_leave(worker):
            return
        if worker.role == "evaluator":
            again = self.crew.restart_evaluator(worker)
            then = "started again" if again else "training goes on without evaluations"
            self.console.note(f"{worker.name} {worker.cause()}; {then}")
            self._write_error(worker)
            return
        if self.crew.has_collected_all(worker):
            self.console.note(f"{worker.name} {worker.cause()} after its last step; nothing is lost")
            self._write_error(worker)
            return
        why_not = ""
        if worker.role == "collector":
            why_not = self.crew.begin_restart(worker)
            if why_not is None:
                self._tell_restart(worker)
                return
        self._fail(worker.name, f"{worker.name} {worker.cause()}{f'; {why_not}' if why_not else ''}")
        self._write_error(worker)

    def _tell_restart(self, worker: Worker) -> None:
        self.console.note(f"{worker.name} {worker.cause()}; starting it again, last log lines:")
        for line in tail(self.start.directory.log_path(worker.name), 3):
            self.console.note(f"  {line}")
        self._write_error(worker)

    def _start_due(self) -> None:
        try:
            self.crew.start_due()
        except (OSError, TransportError) as fault:
            self._fail(None, f"a worker cannot be started again: {explained(fault)}")

    def _look_for_the_hung(self) -> None:
        living, control = self.fleet.living(), self.resources.control
        hung = self.watchdog.hung(living, control)
        if hung is not None:
            self._on_hung(*hung)
        elif self.party.meeting is None:  # on another machine somebody may be at work, for whom these wait
            deadlock = self.watchdog.deadlock(living, control, starting=self.crew.starting)
            if deadlock is not None:
                self._on_deadlock(*deadlock)

    def _on_deadlock(self, left_behind: str | None, why: str) -> None:
        for worker in self.fleet.living():
            request_stacks(worker)
        self._let_stacks_arrive()
        if self.outcome.kind == "running":
            self._fail(left_behind, f"deadlock: {why}; the stacks of all are in their logs")
            self.crew.stop(StopReason.DEADLOCK, left_behind)

    def _on_hung(self, worker: Worker, why: str) -> None:
        request_stacks(worker)
        self.console.note(f"{worker.name} is hung ({why}); its stacks are in its log")
        worker.error = {"line": f"hung: {why}", "traceback": f"{worker.name} was hung: {why}\n"}
        self._let_stacks_arrive()
        worker.process.kill()

    def _let_stacks_arrive(self) -> None:
        """Stacks come through a worker's pipe; who is killed first would leave none in its log."""
        end = time.monotonic() + STACKS_S
        while time.monotonic() < end:
            self._tick(0.1)

    # Ending -------------------------------------------------------------------------------------------------

    def _shut_down(self) -> None:
        """Ask, wait, TERM, KILL; a second Ctrl-C goes straight to the end."""
        if self._faults is not None:
            self._faults.enter("shutdown")  # whoever has nobody left to wait for has no further turn
        limit = self.options.shutdown_timeout_s
        if self.outcome.kind == "failed":
            limit = min(FAULT_GRACE_S, limit)
        grace = limit
        if self.outcome.kind == "finished":  # the last evaluation is part of the run
            self._wait_gone(limit, *BOOTING, Phase.EVALUATING, Phase.SAVING)
            grace = CLOSING_GRACE_S
        self.crew.stop(self.outcome.stop_reason, self.outcome.culprit)
        if not self._wait_gone(grace, Phase.SAVING) and self.interrupts.count < 2:
            late = ", ".join(worker.name for worker in self.fleet.living())
            self.console.note(f"not gone after {limit:g} s, ending: {late}")
            self.fleet.signal_all(signal.SIGTERM)
            self._wait_gone(1.0, Phase.SAVING)
        killed = [worker for worker in self.fleet.living() if worker.role == "learner"]
        self.fleet.kill_all()
        # At boot there is nothing to lose.
        if killed and self.interrupts.count < 2 and not self.status.booting:
            self._fail(killed[0].name, f"{killed[0].name} did not end within shutdown_timeout_s={limit:g} s")
        self._see_whether_it_is_saved()
        self._keeper.restore()

    def _wait_gone(self, limit_s: float, *work: Phase) -> bool:
        """Whether all are gone in time; a worker that gets on with ``work`` is given as long as it needs."""
        deadline, told = time.monotonic() + limit_s, False
        while not self.fleet.wait_gone(deadline, self._closing_tick):
            busy = self.watchdog.getting_on(self.fleet.living(), self.resources.control, work)
            impatient = self.interrupts.count > (0 if Phase.EVALUATING in work else 1)
            if not busy or impatient or self.crew.lost_a_learner():  # then no save can be completed
                return False
            if not told:
                self.console.note(f"waiting for {', '.join(busy)}; Ctrl-C ends it")
            deadline, told = time.monotonic() + CLOSING_GRACE_S, True
        return True

    def _closing_tick(self, timeout_s: float) -> None:
        self._tick(timeout_s)
        nothing_to_lose = self.status.booting and self.outcome.kind == "interrupted"
        for worker in self.fleet.reap():
            if worker.exit_code == 0:
                continue
            if worker.role == "evaluator" or nothing_to_lose:
                self.console.note(f"{worker.name} {worker.cause()} while the run was ending")
            elif self.crew.has_collected_all(worker):
                self.console.note(f"{worker.name} {worker.cause()} after its last step; nothing is lost")
            elif self.outcome.kind != "failed" and self.interrupts.count < 2:
                self._fail(worker.name, f"{worker.name} {worker.cause()} while the run was ending")
                self._write_error(worker)
        if self.interrupts.count >= 2:
            self.fleet.kill_all()

    def _see_whether_it_is_saved(self) -> None:
        """Who asks for a save, or waits for a result, must not take a run that has lost it for a good one."""
        if self._save_fault and self.outcome.kind != "failed" and self.interrupts.count < 2:
            how = f"{self.outcome.reason}, and " if self.outcome.reason else ""
            self._fail(None, f"{how}the last state is lost: {self._save_fault}")

    def _fail(self, culprit: str | None, reason: str) -> None:
        if self.outcome.kind != "failed":
            self.outcome = Outcome("failed", reason, culprit)
            worker = self.fleet.workers.get(culprit or "")
            if worker is not None:
                self._write_error(worker)

    def _write_error(self, worker: Worker) -> None:
        write_error_file(self.start.directory, worker, self.outcome.reason)

    # One turn -----------------------------------------------------------------------------------------------

    def _tick(self, timeout_s: float) -> None:
        """Waits a little, hears everybody, shows a frame when it is time, and sees to interrupts."""
        if self._faults is not None:
            self._faults.enter(self.status.stage(self.outcome.kind))
        self.fleet.poll(timeout_s, [self.interrupts.fileno()])
        self.interrupts.clear_wakeup()
        for worker, message in self.fleet.take_messages():
            self._on_message(worker, message)
        if self.outcome.kind == "running":
            if self.interrupts.count:
                self.outcome = Outcome("interrupted", f"interrupted by {self.interrupts.name}")
            elif self.resources.stop.is_set():
                self.outcome = Outcome("interrupted", self._stop_reason)
        self._keeper.look()
        if time.monotonic() >= self._next_frame:
            self._next_frame = time.monotonic() + FRAME_S
            self._show()

    def _on_message(self, worker: Worker, message: dict[str, Any]) -> None:
        kind = message.pop("kind")
        if kind == "note":
            if "checkpoint" in message or message.get("level") == "error":
                self._save_fault = "" if "checkpoint" in message else message["text"]
            self.status.note(message["text"])
            self.console.note(message["text"])
        elif kind == "stopping":
            self._stop_reason = message["reason"]
        elif kind == "recovered":
            self.crew.finish_restart(message["collector"], message["generation"])
        elif kind in ("metrics", "status"):
            self.status.learner_figures(message)
            if kind == "metrics":
                self.metrics.write(self.status.metrics_record())
                self._check_numbers()
        elif kind == "eval":
            self.status.evaluated(message)
            self.metrics.write(self.status.evaluation_record(message))
        else:
            log.warning("unknown message %r from %s", kind, worker.name)

    def _check_numbers(self) -> None:
        rows = [row for row in self.resources.control.snapshot() if row.name.startswith("collector")]
        why = self._cut_share.see(sum(r.nonfinite for r in rows), sum(r.env_steps for r in rows))
        if why is not None and self.outcome.kind == "running":
            worst = max(rows, key=lambda row: row.nonfinite)
            self._fail(worst.name, why)

    def _show(self) -> None:
        if self.status.booting:
            self.console.boot(self.status.boot_view())
        else:
            self.console.status(self.status.run_view(self.outcome.kind))

    def _final_view(self) -> BootStatus | RunStatus:
        return self.status.boot_view() if self.status.booting else self.status.run_view(self.outcome.kind)

    def _conclude(self, summary: dict[str, Any]) -> int:
        directory = self.start.directory
        assert self.outcome.kind != "running"
        if self.party.leads:
            try:
                directory.record.finish(self.outcome.kind, self.outcome.reason or None, **summary)
            except MotrixError as fault:  # a full disk: how the run ended is still said here
                say([str(fault)])
        say(closing_lines(self.outcome, directory, summary))
        return EXIT_INTERRUPTED_TWICE if self.interrupts.count >= 2 else self.outcome.exit_code
