"""A whole training with its real workers, which a bench can hold still and look into."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from motrix_rl.errors import MotrixError
from motrix_rl.logs import OutputPump, tail
from transport import StopReason, WorkerSnapshot
from workers.crew import Crew
from workers.fleet import Fleet, send_signal
from workers.launch import prepare_launch
from workers.resources import RunResources
from workers.wiring import learner_name

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

_TICK_S = 0.02
#: The end of a run that a bench never reaches.
_FOREVER = 1 << 40


@dataclass(frozen=True)
class EndToEnd:
    """Rates of one interval of a run: environment steps a second that reached the replay, updates a second."""

    steps_per_s: float
    updates_per_s: float


def bench_config(config: RootConfig, directory: Path, *, evaluating: bool) -> RootConfig:
    """The configuration as it is measured: one run without end, checkpoints and reports."""
    trainer = config.algo.trainer.model_copy(update={"num_learning_iterations": _FOREVER})
    quiet = {"tensorboard": False, "wandb": "off", "console": "plain", "level": "warning"}
    return config.model_copy(
        update={
            "run_dir": str(directory),
            "resume": None,
            "algo": config.algo.model_copy(update={"trainer": trainer}),
            "logging": config.logging.model_copy(update=quiet),
            "checkpoint": config.checkpoint.model_copy(update={"interval": 0, "save_replay": False}),
            "eval": config.eval if evaluating else config.eval.model_copy(update={"interval": 0}),
        }
    )


class RealRun:
    """The workers of a run, started and stopped by the bench; the run directory is a temporary one.

    Args:
        config: what is trained.
        evaluating: with its evaluator, as far as it has one.

    Raises:
        UsageError, TopologyError: the request is wrong, or does not fit the machine.
    """

    def __init__(self, config: RootConfig, *, evaluating: bool = False) -> None:
        self._temporary = Path(tempfile.mkdtemp(prefix="motrix-bench-"))
        self._config = bench_config(config, self._temporary / "run", evaluating=evaluating)
        options = self._config.algo.trainer.async_options
        self._timeout_s = options.boot_timeout_s
        try:
            launch = prepare_launch(self._config, None)
        except BaseException:
            shutil.rmtree(self._temporary, ignore_errors=True)
            raise
        self.plan, self.directory = launch.plan, launch.start.directory
        self.output = OutputPump()
        self.fleet = Fleet(self.output, self.directory.log_path)
        self.resources = RunResources.create(
            self.plan,
            ring_capacity=options.ring_capacity,
            start_generation=0,
            policy_size=self.plan.policy_size,
            deterministic=self._config.deterministic,
            group=launch.party.group,
            listener=launch.party.listener,
        )
        self.crew = Crew(self._config, self.plan, launch.start, self.resources, self.fleet)

    def start(self) -> None:
        """Spawns the workers."""
        self.crew.start_all()

    def wait_released(self) -> None:
        """Until every worker is ready; then all begin together."""
        self.wait_for(lambda: not self.crew.not_ready(), "are not ready")
        self.release()

    def release(self) -> None:
        """Lets all begin; the evaluator starts beside them, as in a run."""
        self.resources.handshake.release()
        self.crew.start_evaluator()

    def wait_learning(self) -> None:
        """Until the first update has been done."""
        self.wait_for(lambda: self.learner().updates > 0, "have done no update")

    def wait_for(self, done: object, complaint: str) -> None:
        """Ticks until `done()`.

        Raises:
            MotrixError: a worker failed, or `boot_timeout_s` has passed.
        """
        assert callable(done)
        deadline = time.monotonic() + self._timeout_s
        while not done():
            self.tick()
            if time.monotonic() > deadline:
                raise MotrixError(f"the workers {complaint} after boot_timeout_s={self._timeout_s:g} s")

    def measure(self, seconds: float) -> EndToEnd:
        """Rates over some seconds, once the run goes on; afterwards it is held still again."""
        self.hold(False)
        self._pass(0.2 * seconds)  # rings and caches find their state again
        before, begin = self.learner(), time.perf_counter()
        self._pass(seconds)
        after, spent = self.learner(), time.perf_counter() - begin
        self.hold(True)
        generations = after.generation - before.generation
        return EndToEnd(generations * self._config.num_envs / spent, (after.updates - before.updates) / spent)

    def hold(self, still: bool) -> None:
        """Stops or continues every worker; whatever is shared between them stays as it is."""
        for worker in self.fleet.living():
            send_signal(worker, signal.SIGSTOP if still else signal.SIGCONT)

    def learner(self) -> WorkerSnapshot:
        """The row of rank 0."""
        rows = {row.name: row for row in self.resources.control.snapshot()}
        return rows[learner_name(0)]

    def tick(self) -> None:
        """Hears the workers for a moment.

        Raises:
            MotrixError: one has ended; the message holds the last lines of its log.
        """
        self.fleet.poll(_TICK_S, [])
        self.fleet.take_messages()
        for worker in self.fleet.reap():
            lines = "\n".join(tail(self.directory.log_path(worker.name), 20))
            raise MotrixError(f"{worker.name} {worker.cause()}; the end of its log:\n{lines}")

    def _pass(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.tick()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nothing of this run is kept, so nobody is asked to save.
        self.crew.stop(StopReason.INTERRUPTED, None)
        self.fleet.kill_all()
        self.crew.sweep()
        self.resources.close()
        self.output.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
