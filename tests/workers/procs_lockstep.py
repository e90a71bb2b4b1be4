"""Jobs for the ranks of a `RankCrew`: each is done by all of them at once, in their own processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motrix_rl.algorithms.fastsac.agent import FastSACAgent
from motrix_rl.checkpoint import CheckpointStore
from tests.algorithms.helpers_algorithms import SPEC, make_agent, part_of, random_batch, small_config
from tests.workers.crew_lockstep import TracedGroup
from workers.collectives import RankGroup
from workers.decision import UpdateSchedule
from workers.learner import load_checkpoint
from workers.learner_state import check_replicas

BATCH = 16


def agent_of(group: RankGroup | None, dtype: torch.dtype, **settings: Any) -> FastSACAgent:
    """The same agent on every rank, but for its samples."""
    rank = 0 if group is None else group.rank
    return make_agent(small_config(**settings), dtype=dtype, reducer=group, sample_seed=rank)


def injected(step: int, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    """Batch and noise ``[2, B, A]`` of one update over all ranks; a longer-tailed one now and then is clipped."""
    generator = torch.Generator().manual_seed(step)
    noise = torch.randn(2, BATCH, SPEC.action_dim, generator=generator, dtype=dtype)
    return random_batch(BATCH, seed=step), noise


def train(agent: FastSACAgent, updates: int, rows: slice, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """Updates on given rows of given batches; every tensor that ranks share."""
    for step in range(updates):
        batch, noise = injected(step, dtype)
        agent.update_on(part_of(batch, rows), noise[0, rows], noise[1, rows])
    return {name: tensor.detach().numpy().copy() for name, tensor in agent.all_tensors().items()}


def train_share(group: RankGroup, updates: int, dtype: torch.dtype) -> Any:
    """This rank's share of every batch, and the agent's hash afterwards."""
    agent = agent_of(group, dtype, max_grad_norm=0.5)
    share = BATCH // group.world_size
    tensors = train(agent, updates, slice(group.rank * share, (group.rank + 1) * share), dtype)
    check_replicas(group, agent.parameter_hash)
    return tensors, agent.parameter_hash()


def different_agents_agree(group: RankGroup) -> Any:
    """Every tensor starts as something else on each rank; then the broadcast."""
    agent = agent_of(group, torch.float32, reward_scaling=True)
    for at, tensor in enumerate(agent.all_tensors().values()):
        with torch.no_grad():
            tensor.fill_(100 * group.rank + at)
    group.broadcast_(list(agent.all_tensors().values()))
    agent.refresh()
    values = {name: float(tensor.detach().double().max()) for name, tensor in agent.all_tensors().items()}
    modules = {"actor": agent.actor, "critic": agent.critic, "target": agent.target}
    inside = {
        f"{which}.{name}": float(tensor.detach().min())
        for which, module in modules.items()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
    }
    return values, inside, agent.parameter_hash()


def reduced_elements(group: RankGroup) -> Any:
    """What one critic and one actor update hand to the group, by element: each rank's gradient is its number."""
    agent = agent_of(group, torch.float32)
    for flat in (agent.critic_group, agent.actor_group):
        for parameter in flat.parameters:
            assert parameter.grad is not None
            parameter.grad.fill_(group.rank + 1.0)  # through the parameters, as a backward does
        group.all_reduce_mean_(flat.grad)
    return {
        name: [float(p.grad.min()), float(p.grad.max())]
        for module in (agent.actor, agent.critic)
        for name, p in module.named_parameters()
        if p.grad is not None
    }


def opposed_gradients(group: RankGroup, size: float) -> Any:
    """+g on even ranks, -g on odd ones, far above the clipping norm."""
    agent = agent_of(group, torch.float64, max_grad_norm=0.1, weight_decay=0.0)
    before = agent.critic_group.param.clone()
    g = torch.randn(agent.critic_group.grad.shape, generator=torch.Generator().manual_seed(0)).double()
    # Not the same size on all ranks before averaging: clipping each would leave something.
    sign = 1.0 if group.rank % 2 == 0 else -1.0
    agent.critic_group.grad.copy_(sign * size * g)
    agent.critic_group.reduce(group)
    norm, found = agent.critic_group.step()
    return float(norm), float(found), bool(torch.equal(before, agent.critic_group.param))


def unequal_gradients(group: RankGroup) -> Any:
    """Gradients 1 and 9 of one element: their mean is clipped, not each of them."""
    agent = agent_of(group, torch.float64, max_grad_norm=4.0, weight_decay=0.0)
    agent.critic_group.grad.zero_()
    agent.critic_group.grad[0] = 1.0 if group.rank == 0 else 9.0
    agent.critic_group.reduce(group)
    agent.critic_group.step()
    return float(agent.critic_group.grad[0])


def one_infinite(group: RankGroup, culprit: int, value: float) -> Any:
    """One rank's gradient is not finite in one of three updates."""
    agent = agent_of(group, torch.float32, policy_frequency=1)
    start = agent.critic_group.param.clone()
    batch, noise = injected(1, torch.float32)
    if group.rank == culprit:
        batch.observations[0, 0, 0] = value  # a reward would be clipped to the atoms
    agent.update_on(batch, noise[0], noise[1])
    untouched = bool(torch.equal(agent.critic_group.param, start))
    for step in (2, 3):
        batch, noise = injected(step, torch.float32)
        agent.update_on(batch, noise[0], noise[1])
    went_on = not torch.equal(agent.critic_group.param, start)
    return untouched, went_on, agent.metrics()["nonfinite_skips"], agent.updates_done, agent.parameter_hash()


def observed_rows(rank: int) -> np.ndarray:
    """``[K, N, O]``: another number of environments and another, far, mean on each rank."""
    rng = np.random.default_rng(rank)
    return rng.normal(1e4 + 50 * rank, 1.0, (7, 3 + 2 * rank, SPEC.obs_dim)).astype(np.float32)


def merge_statistics(group: RankGroup) -> Any:
    """Statistics after one merge, after a second without new data, and after a state passed through."""
    agent = agent_of(group, torch.float32)
    rows = observed_rows(group.rank)
    flags = np.zeros(rows.shape[:2], np.uint8)
    agent.observe(rows, reward=rows[..., 0], terminated=flags, truncated=flags, cut=flags)
    agent.sync_statistics()
    first = {name: t.clone() for name, t in agent.statistics.tensors().items()}
    agent.sync_statistics()
    state = agent.state_dict()
    restored = agent_of(group, torch.float32)
    restored.load_state_dict(state)
    restored.sync_statistics()
    same = all(
        torch.equal(first[name], t) and torch.equal(first[name], restored.statistics.tensors()[name])
        for name, t in agent.statistics.tensors().items()
    )
    return {name: t.double().numpy() for name, t in first.items()}, same, agent.parameter_hash()


def replicas_that_differ(group: RankGroup, culprit: int) -> str:
    """What the check says when one rank's parameters are off by one bit."""
    agent = agent_of(group, torch.float32)
    check_replicas(group, agent.parameter_hash)
    if group.rank == culprit:
        with torch.no_grad():
            agent.target_flat[0] = torch.nextafter(agent.target_flat[0], torch.tensor(9.0))
    try:
        check_replicas(group, agent.parameter_hash)
    except RuntimeError as fault:
        return f"{type(fault).__name__}: {fault}"
    return "nothing"


def seeds_and_weights(group: RankGroup) -> Any:
    """The hash of fresh weights, and the first numbers of this rank's own generator."""
    agent = agent_of(group, torch.float32)
    return agent.parameter_hash(), torch.rand(4, generator=agent.generator).tolist()


def gathered_metrics(group: RankGroup, directory: Path) -> Any:
    """One metrics record of all ranks, each with its own returns, lags and losses."""
    from tests.workers.rig_workers import make_rig

    rig = make_rig(directory / f"rank{group.rank}", total=10)
    learner: Any = rig.learner
    learner.ranks = group
    count = 3 * group.rank + 1  # rank 0: one episode of return 10; rank 1: four of return 20, ...
    for _ in range(count):
        learner.statistics.add(0, np.float32([10.0 * (group.rank + 1)]), np.uint8([1]), np.uint8([0]))
    learner.report._lag.add(5 + group.rank)
    learner.report._lag.add(1)
    losses = {"critic_loss": float(group.rank)}
    learner.agent.metrics = lambda: losses
    learner.report.flush(learner)
    return [m for m in rig.hear() if m["kind"] == "metrics"]


def learner_loop(
    group: TracedGroup,
    directory: Path,
    total: int,
    which: int,
    seed: int,
    stop_at: int | None,
    slow: int,
    base: int = 4,
) -> Any:
    """The whole loop of a rank with scripted collectors; one rank is slowed at random.

    Args:
        group: the ranks.
        directory: of the checkpoints; all ranks share it.
        total: generations.
        which: number of everybody's stop signal, unused so far.
        seed: of the script.
        stop_at: stop is raised when this many generations have been admitted, by rank 0, or by a slow rank 1
            while it waits for data that an agreed decision names.
        slow: the rank that sleeps.
        base: generations that owe no update.

    A checkpoint that is there is gone on from, with fresh environments.
    """
    from tests.workers.rig_workers import bursts, make_rig, small_agent, writer_of
    from tests.workers.rows_workers import SPEC as RIG_SPEC

    settings = small_agent(num_updates=3)
    agent = FastSACAgent(
        settings, RIG_SPEC, device="cpu", init_seed=1, sample_seed=2 + group.rank, reducer=group
    )
    rng = np.random.default_rng([seed, group.rank])
    found = CheckpointStore(directory / "checkpoints", 3).newest_valid(print)
    rig = make_rig(
        directory / f"rank{group.rank}",
        agent=agent,
        settings=settings,
        collectors=2,
        total=total,
        seed=seed + group.rank,
        schedule=UpdateSchedule(3, base),
        save_interval=25,
        max_ingest=3,
        start=0 if found is None else found.step,
    )
    learner, stop = rig.learner, group.stops[which]
    learner.ranks, learner.stop = group, stop
    learner.checkpoints = writer_of(directory, 8 * group.world_size)
    if found is not None:
        load_checkpoint(learner, found, 8 * group.world_size, continues=False)
    work = bursts(rig, rng, total)

    def script(waiting: bool) -> None:
        if group.rank == slow:
            time.sleep(float(rng.choice([0.0, 0.0, 0.0, 0.005])))
        raises = group.rank == slow and (waiting or group.rank == 0)
        if stop_at is not None and raises and learner.admitted >= stop_at:
            stop.set()
        if waiting and stop.is_set():
            return  # collectors have left
        work(waiting)

    learner.script = script
    learner.run()
    return {
        "trace": list(group.trace),
        "calls": dict(group.calls),
        "admitted": learner.admitted,
        "held": learner.replay.generation,
        "updates": agent.updates_done,
        "hash": agent.parameter_hash(),
        "sizes": {name: tensor.numel() for name, tensor in agent.trainable_tensors().items()},
    }
