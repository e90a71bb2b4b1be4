"""From N rings through the assembler and the learner's ingest into the replay: nothing changes on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motrix_rl.replay.buffer import ReplayBuffer
from tests.workers.doubles_workers import CountingAgent
from tests.workers.rig_workers import Rig, bursts, make_rig, small_agent
from tests.workers.rows_workers import SPEC

NEVER = small_agent(learning_starts=4000)  # nothing but ingest


def direct(rig: Rig, generations: int) -> ReplayBuffer:
    """The same transitions put straight into a replay of the same sizes."""
    like = rig.learner.replay
    replay = ReplayBuffer(
        num_envs=like.num_envs,
        capacity=like.capacity,
        obs_dim=SPEC.obs_dim,
        critic_obs_dim=None,
        action_dim=SPEC.action_dim,
        n_step=like.n_step,
        gamma=like.gamma,
        device="cpu",
        final_pool_size=6 * like.num_envs,
    )
    for generation in range(generations):
        replay.append(generation, [collector.rows[generation] for collector in rig.collectors])
    return replay


def assert_same(one: Any, two: Any, where: str = "") -> None:
    """Two states are equal to the bit."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, two), f"{where} differs at {torch.nonzero(one != two)[:5].tolist()}"
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, two), where
    else:
        assert one == two, where


def sampled_like(one: ReplayBuffer, two: ReplayBuffer) -> None:
    """Batches drawn with the same numbers are equal too."""
    batches = [replay.sample(64, torch.Generator().manual_seed(5)) for replay in (one, two)]
    for name in ("obs", "action", "reward", "next_obs", "discount", "bootstrap", "weight"):
        assert torch.equal(getattr(batches[0], name), getattr(batches[1], name)), name


@pytest.mark.covers("R8", "R9", "A3")
@pytest.mark.parametrize("collectors", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_replay_equals_direct_appends_to_the_bit(collectors: int, seed: int, tmp_path: Path) -> None:
    total = 120  # the replay of 50 rows wraps twice
    rig = make_rig(
        tmp_path, collectors=collectors, total=total, settings=NEVER, agent=CountingAgent(), seed=seed
    )
    rng = np.random.default_rng(100 + seed)
    rig.learner.script = bursts(rig, rng, total)
    rig.learner.run()
    assert rig.learner.admitted == total
    expected = direct(rig, total)
    assert_same(rig.learner.replay.state_dict(), expected.state_dict())
    sampled_like(rig.learner.replay, expected)


@pytest.mark.covers("R2", "R8", "A3", "S1")
@pytest.mark.parametrize("collectors", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_replay_equals_direct_appends_through_restarts(collectors: int, seed: int, tmp_path: Path) -> None:
    total = 120
    rig = make_rig(
        tmp_path, collectors=collectors, total=total, settings=NEVER, agent=CountingAgent(), seed=seed
    )
    rng = np.random.default_rng(1000 + seed)
    write_on = bursts(rig, rng, total)
    deaths = 0

    def script(waiting: bool) -> None:
        nonlocal deaths
        write_on(waiting)
        for collector in rig.collectors:
            if collector.alive and rng.random() < 0.15 and collector.ring.committed < total:
                rig.lose(collector, torn=bool(rng.random() < 0.7))
                deaths += 1

    rig.learner.script = script
    rig.learner.run()
    assert deaths >= 5
    assert rig.learner.admitted == total
    expected = direct(rig, total)
    assert_same(rig.learner.replay.state_dict(), expected.state_dict())
    sampled_like(rig.learner.replay, expected)


def run_to(rig: Rig, generations: int) -> None:
    """Admits exactly this many generations, then stops without saving."""

    def script(waiting: bool) -> None:
        if rig.learner.admitted >= generations:
            rig.stop.set()
            return
        for collector in rig.collectors:
            if collector.ring.committed < generations:
                collector.step()

    rig.learner.script = script
    rig.learner._saved_at = generations
    rig.learner.run()


@pytest.mark.covers("R2", "R8")
@pytest.mark.parametrize("where", ["unseated", "seated", "admitted"])
def test_the_last_row_of_a_dead_incarnation_is_cut_wherever_it_is(where: str, tmp_path: Path) -> None:
    rig = make_rig(tmp_path, collectors=2, settings=NEVER, agent=CountingAgent(), seed=3)
    run_to(rig, 5)
    learner, (first, second) = rig.learner, rig.collectors
    if where != "admitted":
        while not (first.step() and (first.rows[-1].terminated | first.rows[-1].truncated).any()):
            pass
        if where == "seated":
            learner.assembler.drain()
    rig.lose(first, torn=True)
    last = first.rows[-1]
    learner.hear_notices()
    told = rig.hear()
    assert [(m["collector"], m["generation"]) for m in told if m["kind"] == "recovered"] == [
        (0, len(first.rows))
    ]
    first.step()
    while len(second.rows) < len(first.rows):
        second.step()
    learner.assembler.drain()
    while learner.assembler.complete > learner.admitted:
        learner._admit()
        learner.assembler.release_popped()
    ended = (last.terminated | last.truncated) != 0
    assert (last.cut[~ended] == 1).all()
    assert (last.cut[ended] == 0).all(), "a row that ended is complete without what follows"
    expected = direct(rig, len(first.rows))
    assert_same(learner.replay.state_dict(), expected.state_dict())


@pytest.mark.covers("E3", "R2")
@pytest.mark.parametrize("seed", range(4))
def test_episodes_that_a_restart_cuts_off_are_aborted_and_every_other_one_counts(
    seed: int, tmp_path: Path
) -> None:
    total = 80
    rig = make_rig(tmp_path, collectors=2, total=total, settings=NEVER, agent=CountingAgent(), seed=seed)
    rng = np.random.default_rng(seed)
    write_on = bursts(rig, rng, total)

    def script(waiting: bool) -> None:
        if rng.random() < 0.5:  # before it writes: its last row has been admitted, or is about to be
            write_on(waiting)
        victim = rig.collectors[int(rng.integers(2))]
        if victim.alive and rng.random() < 0.2 and victim.ring.committed < total:
            rig.lose(victim, torn=True)
        rig.hear()

    rig.learner.script = script
    rig.learner.run()
    rows = [np.concatenate([c.rows[g].reward for c in rig.collectors]) for g in range(total)]
    ends = [
        np.concatenate([c.rows[g].terminated | c.rows[g].truncated for c in rig.collectors]) != 0
        for g in range(total)
    ]
    cuts = [np.concatenate([c.rows[g].cut for c in rig.collectors]) != 0 for g in range(total)]
    finished: list[float] = []
    aborted = 0
    sums = np.zeros(rig.learner.replay.num_envs)
    for reward, ended, cut in zip(rows, ends, cuts, strict=True):
        sums += reward
        finished += sums[ended].tolist()
        aborted += int(cut.sum())
        sums[ended | cut] = 0.0
    summary = rig.learner.statistics.summary()
    assert (summary.episodes, summary.aborted) == (len(finished), aborted)
    assert summary.return_mean == pytest.approx(np.mean(finished[-100:]))
