"""Boot of a learner rank: makes agent, replay and rings' reading ends, loads a checkpoint, runs the loop."""

from __future__ import annotations

import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.checkpoint import CheckpointRef, CheckpointStore, load_file, open_checkpoint
from motrix_rl.errors import MotrixError
from motrix_rl.replay.buffer import ReplayBuffer
from transport import Counter, Phase, WorkerBoard
from workers.assembler import CollectorEndpoint, GenerationAssembler
from workers.boot import start_together
from workers.collectives import RankGroup, Ranks, SoloRank
from workers.decision import ActingSchedule, UpdateSchedule, UtdMode, warmup_generations
from workers.learner_state import CheckpointWriter, ResumePoint, check_replicas, rank_file, replay_file
from workers.learning_loop import Learner, blank_batch
from workers.publisher import Publisher
from workers.reporting import LearnerReport
from workers.seeds import Stream, derive_seed
from workers.skipped_steps import SkippedSteps
from workers.staging import DrainStaging
from workers.statistics import EpisodeStatistics
from workers.wiring import LearnerWiring, WorkerContext

log = logging.getLogger(__name__)

#: Seconds of the preparation from which on something was compiled, not only read from the disk.
COMPILED_NOW_S = 1.0


def run(context: WorkerContext, wiring: LearnerWiring, board: WorkerBoard) -> None:
    """Boots a learner and runs it to its end."""
    board.set_phase(Phase.BUILDING)
    torch.set_num_threads(context.num_threads)
    if wiring.device.startswith("cuda"):
        torch.cuda.set_device(wiring.device)  # libraries that look at the current one take no other's memory
    learner = build_learner(context, wiring, board)
    if wiring.resume is not None:
        load_checkpoint(
            learner, open_checkpoint(Path(wiring.resume)), context.config.num_envs, wiring.continues
        )
    agree_on_parameters(learner)
    if context.config.deterministic:
        learner.publisher.publish(learner.admitted)
    elif wiring.resume is not None:
        learner.publisher.publish()  # the refill acts with the restored policy
    board.set(Counter.GENERATION, learner.admitted)
    board.set(Counter.UPDATES, learner.agent.updates_done)
    for ring in wiring.rings.values():
        ring.prefault()
    for mailbox in wiring.mailboxes:
        mailbox.prefault()
    for endpoint in learner.assembler.endpoints:
        learner.deliver_slots(endpoint)
    preparation = learner.agent.preparation
    if preparation == "compiles":
        board.set_phase(Phase.COMPILING)
        seconds = prepare_update(learner)
        if learner.ranks.rank == 0 and seconds >= COMPILED_NOW_S:
            learner.report.note(
                f"update compiled in {seconds:.0f} s; kept for the next start, if the disk allows"
            )
    if not start_together(context, board):
        return
    with ThreadPoolExecutor(1, "prepare") as beside:
        if preparation == "loads":  # what is done in the time that the warm-up takes anyhow
            learner.preparation = beside.submit(prepare_update, learner)
        learner.run()
    learner.ranks.close()


def prepare_update(learner: Learner) -> float:
    """Compiles the update, which may take minutes, or loads what is compiled; returns the seconds it took."""
    begin = time.monotonic()
    learner.agent.prepare(*blank_batch(learner.agent))
    seconds = time.monotonic() - begin
    log.info("update prepared in %.1f s", seconds)
    return seconds


def build_learner(context: WorkerContext, wiring: LearnerWiring, board: WorkerBoard) -> Learner:
    """A learner at generation 0, or at that of the checkpoint it is about to load."""
    config = context.config
    trainer, settings = config.algo.trainer, config.algo.agent
    options = trainer.async_options
    spec = context.env_spec
    num_envs = sum(hi - lo for lo, hi in wiring.shards.values())
    point = ResumePoint.read(open_checkpoint(Path(wiring.resume))) if wiring.resume is not None else None
    start = point.generation if point else 0
    warmup = warmup_generations(settings.learning_starts, config.num_envs, settings.n_step)
    ranks = join_ranks(wiring, board)
    agent = FastSACAgent(
        settings,
        spec,
        device=wiring.device,
        init_seed=derive_seed(config.seed, Stream.INITIAL_WEIGHTS),
        sample_seed=derive_seed(config.seed, Stream.SAMPLING, wiring.rank, start=start),
        reducer=ranks if isinstance(ranks, RankGroup) else None,
    )
    replay = ReplayBuffer(
        num_envs=num_envs,
        capacity=replay_rows(settings.buffer_size, config.num_envs, settings.n_step),
        obs_dim=spec.obs_dim,
        critic_obs_dim=spec.critic_obs_dim,
        action_dim=spec.action_dim,
        n_step=settings.n_step,
        gamma=settings.gamma,
        device=wiring.device,
    )
    log.info(
        "replay of %d rows x %d environments takes %.1f MB", replay.capacity, num_envs, replay.nbytes / 1e6
    )
    endpoints = [
        CollectorEndpoint(collector, ring.consumer(), *wiring.shards[collector])
        for collector, ring in sorted(wiring.rings.items())
    ]
    report = LearnerReport(
        context.messages, interval=config.logging.interval, num_envs=config.num_envs, start=start
    )
    checkpoints = CheckpointWriter(
        CheckpointStore(
            Path(context.files.run_dir) / "checkpoints", config.checkpoint.keep_last, on_progress=board.beat
        ),
        save_replay=config.checkpoint.save_replay,
        collect_states=config.deterministic,
        metadata={"task": config.task, "num_envs": config.num_envs},
    )
    return Learner(
        agent=agent,
        replay=replay,
        assembler=GenerationAssembler(endpoints, start),
        schedule=schedule_for(
            point, settings.num_updates, warmup, options.utd_mode, same_layout(point, config.num_envs, ranks)
        ),
        ranks=ranks,
        publisher=Publisher(
            agent, wiring.mailboxes, 0 if config.deterministic else options.weight_publish_interval
        ),
        statistics=EpisodeStatistics(num_envs),
        checkpoints=checkpoints,
        report=report,
        board=board,
        control=context.control,
        notices=wiring.notices,
        handshake=context.handshake,
        evaluation=wiring.evaluation,
        acting=ActingSchedule.of(config, start),
        stop=context.stop,
        total=trainer.num_learning_iterations,
        nnodes=wiring.nnodes,
        max_ingest=1 if config.deterministic else options.max_ingest_per_iter,
        save_interval=config.checkpoint.interval,
        eval_interval=config.eval.interval,
        staging=DrainStaging(wiring.device),
        shared_weights=wiring.shared_weights,
        skipped=SkippedSteps(
            agent, trainer.max_nan_steps, Path(context.files.run_dir) / "async_errors", context.name
        ),
    )


def replay_rows(buffer_size: int, num_envs: int, n_step: int) -> int:
    """Time rows of the replay: as many whole generations as ``buffer_size`` transitions fill."""
    return max(math.ceil(buffer_size / num_envs), n_step + 2)


def join_ranks(wiring: LearnerWiring, board: WorkerBoard) -> Ranks:
    """Meets the other ranks; a single rank makes no group."""
    if wiring.group is None:
        return SoloRank()
    return RankGroup(
        wiring.group,
        rank=wiring.rank,
        world_size=wiring.world_size,
        device=torch.device(wiring.device),
        board=board,
        exclusive=wiring.exclusive,
    )


def agree_on_parameters(learner: Learner) -> None:
    """Rank 0's tensors everywhere, checked to the bit; after the start and after every load."""
    if isinstance(learner.ranks, RankGroup):
        learner.ranks.broadcast_(list(learner.agent.all_tensors().values()))
        learner.agent.refresh()
        check_replicas(learner.ranks, learner.agent.parameter_hash)


def same_layout(point: ResumePoint | None, num_envs: int, ranks: Ranks) -> bool:
    """Whether a checkpoint's per-rank parts (replay, random numbers) fit this run's ranks."""
    return point is not None and (point.num_envs, point.world_size) == (num_envs, ranks.world_size)


def schedule_for(
    point: ResumePoint | None, num_updates: int, warmup: int, mode: UtdMode, same: bool
) -> UpdateSchedule:
    """The update schedule of a fresh or a resumed run.

    Args:
        point: counters of the checkpoint, if any.
        num_updates: updates owed for each generation.
        warmup: generations of a warm-up, and of a refill where the replay cannot be loaded.
        mode: how updates are owed.
        same: the checkpoint's per-rank parts fit.
    """
    if point is None:
        return UpdateSchedule(num_updates, warmup, mode=mode)
    refill = 0 if point.has_replay and same else warmup
    return point.schedule.resumed(
        num_updates=num_updates, mode=mode, generation=point.generation, done=point.updates, refill=refill
    )


def load_checkpoint(learner: Learner, checkpoint: CheckpointRef, num_envs: int, continues: bool) -> None:
    """Puts the learner where the checkpoint was written.

    On another layout (environments or learners) the networks and their optimisers go on, and what belonged to
    single ranks starts anew: the replay is refilled before the first update.

    Raises:
        MotrixError: the checkpoint's networks are of other sizes than this run's.
    """
    point = ResumePoint.read(checkpoint)
    rank, same = learner.ranks.rank, same_layout(point, num_envs, learner.ranks)
    state = load_file(checkpoint, rank_file(rank if same else 0))
    try:
        learner.agent.load_state_dict(state["agent"], local=same)
        if rank == 0 or same:
            learner.statistics.load_state_dict(state["statistics"], running=continues)
        if point.has_replay and same:
            learner.replay.load_state_dict(load_file(checkpoint, replay_file(rank)))
        if not continues:  # fresh environments: no row and no running return goes on
            learner.replay.mark_last_cut(0, learner.replay.num_envs)
            # A rank that stop kept from its last data holds fewer generations than the others.
            learner.replay.generation = point.generation
            learner.agent.mark_last_cut(0, learner.replay.num_envs)
    except ValueError as fault:
        raise MotrixError(f"cannot resume from {checkpoint.path}: {fault}") from fault
    log.info("resumed from %s: generation %d, %d updates", checkpoint.path, point.generation, point.updates)
    if not same:
        learner.report.note(
            f"resumed on another layout ({point.num_envs} environments, {point.world_size} learners before): "
            "the replay is refilled first"
        )
