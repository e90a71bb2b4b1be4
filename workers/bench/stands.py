"""What runs in a bench's own processes: one stage of a training, alone, on the CPUs it has in a run."""

from __future__ import annotations

import logging
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.algorithms.fastsac.graphs import WARM_UP
from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.envs.base import StepBuffers
from motrix_rl.envs.mujoco.base import MujocoBatchEnv
from transport import ControlBlock, Ring, StopSignal, WeightMailbox, set_parent_death_signal, wait_any
from workers.bench.synthetic import fill_rows, filled_replay
from workers.boot import make_worlds
from workers.collector import Collector
from workers.publisher import Publisher

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig
    from motrix_rl.envs.spec import EnvSpec

#: The end of a run that a bench never reaches.
FOREVER = 1 << 60
_ACTIONS = 64


@dataclass(frozen=True)
class StandSetup:
    """What every stand gets.

    Attributes:
        config: the configuration that is measured.
        spec: sizes and bounds of its task.
        threads: threads of this worker, as the topology has it.
        parent_pid: the bench.
    """

    config: RootConfig
    spec: EnvSpec
    threads: int
    parent_pid: int


@dataclass(frozen=True)
class CollectorShare:
    """A collector's part of a run: its environments [lo, hi), its channels, its device."""

    index: int
    lo: int
    hi: int
    ring: Ring
    mailbox: WeightMailbox
    control: ControlBlock
    stop: StopSignal
    device: str


@dataclass(frozen=True)
class LearnerShare:
    """A rank's part of a run: its device, its environments, the rings that it reads and what it publishes."""

    device: str
    num_envs: int
    batch_size: int
    rings: dict[int, Ring]
    mailboxes: tuple[WeightMailbox, ...]


class EnvironmentStand:
    """What a collector does, taken apart: stepping its environments, and inference."""

    def __init__(self, setup: StandSetup, lo: int, hi: int, device: str) -> None:
        self._env = make_worlds(
            setup.config, hi - lo, seed=setup.config.seed, num_threads=setup.threads, first_world=lo
        )
        self._physics: TimedBatch | None = None
        if isinstance(self._env, MujocoBatchEnv):
            self._physics = TimedBatch(self._env.batch)
            vars(self._env)["batch"] = self._physics
        self._buffers = StepBuffers.allocate(setup.spec, hi - lo)
        rng = np.random.default_rng(setup.config.seed)
        low, high = np.asarray(setup.spec.action_low), np.asarray(setup.spec.action_high)
        shape = (_ACTIONS, hi - lo, setup.spec.action_dim)
        self._actions = rng.uniform(low, high, shape).astype(np.float32)
        self._env.reset_into(setup.config.seed, self._buffers.obs, self._buffers.critic_obs)
        self._step = 0
        torch.set_num_threads(setup.threads)
        self._policy = Policy(setup.config.algo.agent, setup.spec, device=device)
        self._generator = torch.Generator().manual_seed(setup.config.seed)

    def run(self, seconds: float) -> dict[str, float | None]:
        """Environment steps a second, and those of the physics alone: the time within MuJoCo's step call.

        Both come from the same steps, so that they see the same states: a robot that lies costs more.
        """
        begin_physics = 0.0 if self._physics is None else self._physics.seconds
        steps, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or steps == 0:
            self._env.step_into(self._actions[self._step % _ACTIONS], self._buffers)
            self._step += 1
            steps += self._env.num_envs
        physics = None if self._physics is None else steps / (self._physics.seconds - begin_physics)
        return {"steps_per_s": steps / spent, "physics_per_s": physics}

    def act(self, seconds: float) -> float:
        """Environment steps a second that the actor alone could choose actions for."""
        actions = self._actions[0].copy()
        steps, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or steps == 0:
            self._policy.act(self._buffers.obs, actions, generator=self._generator)
            steps += self._env.num_envs
        return steps / spent

    def step_as_acted(self, seconds: float) -> float:
        """Environment steps a second with the actor's actions, whose states are a collector's; inference is
        not counted.
        """
        actions = self._actions[0].copy()
        steps, stepping, begin = 0, 0.0, time.perf_counter()
        while time.perf_counter() - begin < seconds or steps == 0:
            self._policy.act(self._buffers.obs, actions, generator=self._generator)
            before = time.perf_counter()
            self._env.step_into(actions, self._buffers)
            stepping += time.perf_counter() - before
            steps += self._env.num_envs
        return steps / stepping


class TimedBatch:
    """MuJoCo's batch, with a clock on `step`."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.seconds = 0.0

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The batch's own step."""
        begin = time.perf_counter()
        try:
            return self._batch.step(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


class LearnerStand:
    """Updates an agent from a filled replay, or empties the rings of the collectors; one at a time."""

    def __init__(self, setup: StandSetup, share: LearnerShare) -> None:
        torch.set_num_threads(setup.threads)
        settings = setup.config.algo.agent.model_copy(update={"batch_size": share.batch_size})
        self._device = torch.device(share.device)
        self._agent = FastSACAgent(settings, setup.spec, device=share.device, init_seed=0, sample_seed=1)
        rows = fill_rows(settings.buffer_size, setup.config.num_envs, settings.n_step)
        self._replay = filled_replay(settings, setup.spec, share.num_envs, rows, share.device, self._agent)
        self._chunk = settings.num_updates
        self._consumers = {index: ring.consumer() for index, ring in share.rings.items()}
        for ring in share.rings.values():
            ring.prefault()
        Publisher(self._agent, share.mailboxes, 0).publish(0)
        # Buffers, kernels, compilation, graphs.
        self._agent.update(self._replay, (WARM_UP + 1) * settings.policy_frequency)

    def transitions(self) -> int:
        """Transitions in the replay that updates draw from."""
        return self._replay.size

    def updates(self, seconds: float) -> float:
        """Updates a second."""
        self._synchronise()
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds or done == 0:
            self._agent.update(self._replay, self._chunk)
            done += self._chunk
        self._synchronise()
        return done / (time.perf_counter() - begin)

    def drain(self, seconds: float) -> dict[int, float]:
        """Slots a second that each collector delivers while its ring is emptied at once."""
        self._drain_for(0.2 * seconds)  # what was waiting in the rings was not made in this time
        counts, spent = self._drain_for(seconds)
        return {index: count / spent for index, count in counts.items()}

    def _drain_for(self, seconds: float) -> tuple[dict[int, int], float]:
        counts = dict.fromkeys(self._consumers, 0)
        begin = time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds:
            wait_any(list(self._consumers.values()), timeout_s=min(0.5, seconds))
            for index, consumer in self._consumers.items():
                while consumer.take() is not None:
                    consumer.release()
                    counts[index] += 1
        return counts, spent

    def products(self, seconds: float, shape: tuple[int, int, int]) -> float:
        """Operations a second of a bare matrix product of the sizes [m, k] and [k, n], float32."""
        m, k, n = shape
        left, right = torch.randn(m, k, device=self._device), torch.randn(k, n, device=self._device)
        out = torch.empty(m, n, device=self._device)
        chunk = max(1, int(2e7 / (m * k * n)))
        self._synchronise()
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds or done == 0:
            for _ in range(chunk):
                torch.mm(left, right, out=out)
            done += chunk
        self._synchronise()
        return 2.0 * m * k * n * done / (time.perf_counter() - begin)

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def serve(
    *, make: Callable[..., Any], setup: StandSetup, arguments: dict[str, Any], connection: Connection
) -> None:
    """A stand's process: makes it, says so, and answers one call after another until its pipe is closed."""
    _settle_in(setup)
    try:
        stand = make(setup, **arguments)
        connection.send(("ready", None))
        while True:
            name, kwargs = connection.recv()
            connection.send(("ok", getattr(stand, name)(**kwargs)))
    except EOFError:
        return
    except BaseException:
        connection.send(("failed", traceback.format_exc()))
        raise


def collect(*, setup: StandSetup, share: CollectorShare, connection: Connection) -> None:
    """A collector's process: the collector's own loop, held up by its ring whenever nobody empties it."""
    _settle_in(setup)
    torch.set_num_threads(setup.threads)
    config = setup.config
    try:
        env = make_worlds(
            config, share.hi - share.lo, seed=config.seed, num_threads=setup.threads, first_world=share.lo
        )
        collector = Collector(
            env,
            Policy(config.algo.agent, setup.spec, device=share.device),
            share.ring.producer(),
            share.mailbox.reader(),
            share.control.board(f"collector-{share.index}"),
            total=FOREVER,
            random_until=0,
            poll_interval=config.algo.trainer.async_options.weight_poll_interval,
            seed=config.seed + share.index,
        )
        connection.send(("ready", None))
        collector.run(share.stop, config.seed)
    except BaseException:
        connection.send(("failed", traceback.format_exc()))
        raise


def _settle_in(setup: StandSetup) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_parent_death_signal(setup.parent_pid)
    logging.basicConfig(
        level=logging.WARNING, format=f"%(levelname)s bench process {os.getpid()}: %(message)s"
    )
