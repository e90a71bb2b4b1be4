"""The collector: steps its shard of the environments and writes every step into its ring."""

from __future__ import annotations

import logging

import numpy as np
import torch

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.envs.base import BatchEnv, StepBuffers
from motrix_rl.tasks.registry import make_env, parse_task
from transport import Counter, Phase, RingProducer, SlotView, StopSignal, WeightReader, WorkerBoard
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
    ) -> None:
        self.env = env
        self.policy = policy
        self.producer = producer
        self.weights = weights
        self.board = board
        self.total = total
        self.random_until = random_until
        self.poll_interval = poll_interval
        self.version = -1
        self._rng = np.random.default_rng(seed)
        self._generator = torch.Generator().manual_seed(seed)

    def run(self, stop: StopSignal, env_seed: int) -> None:
        """Collects until the run's last generation or until stop is raised; finishes the slot it is in."""
        self.board.set_phase(Phase.WAITING)
        slot = self._reserve(stop)
        if slot is None:
            return
        self.board.set_phase(Phase.STEPPING)  # a reset that hangs is found as a step is
        self.env.reset_into(env_seed, slot.obs, slot.critic_obs)
        self._poll_weights()
        while slot.generation < self.total and not stop.is_set():
            self.board.set_phase(Phase.WAITING)
            following = self._reserve(stop)
            if following is None:
                return
            self._step(slot, following)
            slot = following

    def _reserve(self, stop: StopSignal) -> SlotView | None:
        """Waits for a free slot, with a sign of life every second; None when stop is raised."""
        while (slot := self.producer.reserve(stop, timeout_s=1.0)) is None and not stop.is_set():
            self.board.beat()
        return slot

    def _step(self, slot: SlotView, following: SlotView) -> None:
        generation = slot.generation
        self.board.set_phase(Phase.ACTING)
        if generation % self.poll_interval == 0:
            self._poll_weights()
        if generation < self.random_until or self.version < 0:
            self.policy.random_actions(slot.action, self._rng)
        else:
            self.policy.act(slot.obs, slot.action, deterministic=False, generator=self._generator)
            slot.policy_version = self.version
        self.board.set_phase(Phase.STEPPING)
        nonfinite = self.env.nonfinite_count
        slot.num_final = self.env.step_into(slot.action, buffers_of(slot, following))
        self.producer.commit()
        self.board.add(Counter.ENV_STEPS, self.env.num_envs)
        self.board.set(Counter.GENERATION, generation + 1)
        self.board.add(Counter.NONFINITE, self.env.nonfinite_count - nonfinite)  # goes on over incarnations

    def _poll_weights(self) -> None:
        version = self.weights.poll()
        if version is not None:
            self.policy.load(self.weights.payload)
            self.version = version
            self.board.set(Counter.POLICY_VERSION, version)


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
    task = parse_task(config.task)
    env = make_env(
        task.task,
        task.backend,
        wiring.env_hi - wiring.env_lo,
        seed=derive_seed(config.seed, Stream.ENVIRONMENT, wiring.index, context.incarnation),
        num_threads=context.num_threads,
        options=config.env,
        first_world=wiring.env_lo,
    )
    policy = Policy(config.algo.agent, context.env_spec, device=wiring.device)
    message = context.handshake.receive(
        context.name, context.incarnation, context.stop, options.boot_timeout_s
    )
    if message is None:
        return
    producer = wiring.ring.producer(context.incarnation, message)
    board.set_phase(Phase.READY)
    context.handshake.mark_ready(context.name, context.incarnation)
    if not context.handshake.wait_released(context.stop, barrier=context.barrier):
        return
    log.info("collecting environments %d to %d", wiring.env_lo, wiring.env_hi - 1)
    collector = Collector(
        env,
        policy,
        producer,
        wiring.mailbox.reader(),
        board,
        total=config.algo.trainer.num_learning_iterations,
        random_until=wiring.random_until,
        poll_interval=options.weight_poll_interval,
        seed=derive_seed(config.seed, Stream.ACTION, wiring.index, context.incarnation),
    )
    try:
        collector.run(
            context.stop, derive_seed(config.seed, Stream.ENVIRONMENT, wiring.index, context.incarnation)
        )
    finally:
        env.close()
