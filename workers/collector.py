"""The collector: steps its shard of the environments and writes every step into its ring."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.envs.base import BatchEnv, StepBuffers
from motrix_rl.errors import MotrixError
from transport import (
    Counter,
    DeviceWeightMailbox,
    Phase,
    RingProducer,
    SlotView,
    StopSignal,
    WeightReader,
    WorkerBoard,
    wait_any,
)
from workers.boot import make_worlds, start_together
from workers.collector_state import pending_file, read_state, write_state
from workers.decision import ActingSchedule
from workers.seeds import Stream, derive_seed
from workers.wiring import CollectorWiring, WorkerContext

log = logging.getLogger(__name__)


class Collector:
    """``while not stop: hold slots g and g+1; act; step; commit g``.

    Args:
        env: the shard, already bound to this process.
        policy: inference copy of the actor.
        producer: writing end of the ring.
        weights: reading end of the mailbox.
        board: this worker's row of the control block.
        total: generation at which the run ends.
        random_until: generations below this act uniformly at random.
        poll_interval: generations between two looks into the mailbox.
        seed: seed of this incarnation's actions.
        acting: which version acts when (deterministic mode), or None: the newest.
        state_path: where the state goes before a generation at which a checkpoint is taken.
    """

    def __init__(
        self,
        env: BatchEnv,
        policy: Policy,
        producer: RingProducer,
        weights: WeightReader,
        board: WorkerBoard,
        *,
        total: int,
        random_until: int,
        poll_interval: int,
        seed: int,
        acting: ActingSchedule | None = None,
        state_path: Callable[[int], Path] | None = None,
    ) -> None:
        self.env = env
        self.policy = policy
        self.producer = producer
        self.weights = weights
        self.board = board
        self.total = total
        self.random_until = random_until
        self.poll_interval = poll_interval
        self.acting = acting
        self.state_path = state_path
        self.version = -1
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def run(self, stop: StopSignal, env_seed: int | None) -> None:
        """Collects until the run's last generation or until stop is raised; finishes the slot it is in.

        Args:
            stop: ends it.
            env_seed: seed of the first reset; None goes on with the worlds as they were loaded.
        """
        slot = self._reserve(stop)
        if slot is None:
            return
        self.board.set_phase(Phase.STEPPING)  # a reset that hangs is found as a step is
        if env_seed is None:
            self.env.current_obs_into(slot.obs, slot.critic_obs)
        else:
            self.env.reset_into(env_seed, slot.obs, slot.critic_obs)
        while slot.generation < self.total and not stop.is_set():
            following = self._reserve(stop)
            if following is None or not self._get_weights(slot.generation, stop):
                return
            self._step(slot, following)
            slot = following

    def _reserve(self, stop: StopSignal) -> SlotView | None:
        """Waits for a free slot, with a sign of life every second; None when stop is raised."""
        self.board.set_phase(Phase.WAITING)
        while (slot := self.producer.reserve(stop, timeout_s=1.0)) is None and not stop.is_set():
            self.board.beat()
        return slot

    def _get_weights(self, generation: int, stop: StopSignal) -> bool:
        """The newest weights, or exactly those that the schedule names; False when stop is raised first."""
        if self.acting is None:
            if generation % self.poll_interval == 0 and self.weights.poll() is not None:
                self._load()
            return True
        if generation < self.random_until:
            return True
        wanted = self.acting.version(generation)
        while not self.weights.fetch(wanted):
            wait_any([self.weights.doorbell_fd], stop, timeout_s=1.0)
            if stop.is_set():
                return False
            self.board.beat()
        if self.version != wanted:
            self._load()
        return True

    def _load(self) -> None:
        self.policy.load(self.weights.payload)
        self.version = self.weights.version
        self.board.set(Counter.POLICY_VERSION, self.version)

    def _step(self, slot: SlotView, following: SlotView) -> None:
        generation = slot.generation
        self.board.set_phase(Phase.ACTING)
        if generation < self.random_until or self.version < 0:
            self.policy.random_actions(slot.action, self.rng)
        else:
            self.policy.act(slot.obs, slot.action, deterministic=False, generator=self.generator)
            slot.policy_version = self.version
        self.board.set_phase(Phase.STEPPING)
        nonfinite = self.env.nonfinite_count
        slot.num_final = self.env.step_into(slot.action, buffers_of(slot, following))
        self.producer.commit()
        self.board.add(Counter.ENV_STEPS, self.env.num_envs)
        self.board.set(Counter.GENERATION, generation + 1)
        self.board.add(Counter.NONFINITE, self.env.nonfinite_count - nonfinite)  # goes on over incarnations
        if self.acting is not None and self.acting.is_boundary(generation + 1):
            self._save_state(generation + 1)

    def _save_state(self, generation: int) -> None:
        assert self.state_path is not None
        self.board.set_phase(Phase.SAVING)
        try:
            write_state(self.state_path(generation), self.env, self.rng, self.generator)
        except (OSError, MotrixError) as fault:  # the checkpoint is then written without it
            log.error("state not saved: %s", fault)
        self.board.set(Counter.SAVED, generation)


def buffers_of(slot: SlotView, following: SlotView) -> StepBuffers:
    """Step ``g`` fills its own slot, but its next observation belongs in slot ``g + 1``."""
    return StepBuffers(
        obs=following.obs,
        critic_obs=following.critic_obs,
        reward=slot.reward,
        terminated=slot.terminated,
        truncated=slot.truncated,
        cut=slot.cut,
        final_index=slot.final_index,
        final_obs=slot.final_obs,
        final_critic_obs=slot.final_critic_obs,
    )


def run(context: WorkerContext, wiring: CollectorWiring, board: WorkerBoard) -> None:
    """Boots a collector and runs it to its end."""
    board.set_phase(Phase.BUILDING)
    torch.set_num_threads(context.num_threads)
    config = context.config
    options = config.algo.trainer.async_options
    life = {"incarnation": context.incarnation, "start": wiring.start}
    env_seed = derive_seed(config.seed, Stream.ENVIRONMENT, **life)
    env = make_worlds(
        config,
        wiring.env_hi - wiring.env_lo,
        seed=env_seed,
        num_threads=context.num_threads,
        first_world=wiring.env_lo,
    )
    policy = Policy(config.algo.agent, context.env_spec, device=wiring.device)
    board.set_phase(Phase.WAITING)  # for its learner
    message = context.handshake.receive(
        context.name, context.incarnation, context.stop, options.boot_timeout_s
    )
    if message is None:
        return
    producer = wiring.ring.producer(context.incarnation, message)
    if isinstance(wiring.mailbox, DeviceWeightMailbox):
        wiring.mailbox.accept(message.weights)
    if not start_together(context, board):
        return
    log.info("collecting environments %d to %d", wiring.env_lo, wiring.env_hi - 1)
    collector = Collector(
        env,
        policy,
        producer,
        wiring.mailbox.reader(wiring.doorbell),
        board,
        total=config.algo.trainer.num_learning_iterations,
        random_until=wiring.random_until,
        poll_interval=options.weight_poll_interval,
        seed=derive_seed(config.seed, Stream.ACTION, wiring.index, **life),
        acting=ActingSchedule.of(config, wiring.start),
        state_path=lambda generation: pending_file(context.files.run_dir, generation, wiring.index),
    )
    if wiring.state is not None:
        read_state(Path(wiring.state), env, collector.rng, collector.generator)
    try:
        collector.run(context.stop, env_seed if wiring.state is None else None)
    finally:
        env.close()
