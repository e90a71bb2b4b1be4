"""Sampling, refusals, accounting and state of the replay."""

from __future__ import annotations

import io
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch

from motrix_rl.replay.batch import Batch
from motrix_rl.replay.buffer import ReplayBuffer
from tests.replay.oracle import random_generation


def make(**changes: Any) -> ReplayBuffer:
    settings: dict[str, Any] = {
        "num_envs": 4,
        "capacity": 10,
        "obs_dim": 2,
        "critic_obs_dim": None,
        "action_dim": 1,
        "n_step": 1,
        "gamma": 0.9,
    }
    return ReplayBuffer(**(settings | changes))


def fill(replay: ReplayBuffer, steps: int, seed: int = 0, **options: Any) -> None:
    rng = np.random.default_rng(seed)
    for generation in range(steps):
        replay.append(generation, [random_generation(rng, replay.num_envs, **options)])


@pytest.mark.covers("A5")
@pytest.mark.parametrize("steps", [7, 10, 13], ids=["part full", "just full", "wrapped"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_are_uniform_over_time_and_env(steps: int, n_step: int) -> None:
    replay = make(n_step=n_step)
    fill(replay, steps)
    generator = torch.Generator().manual_seed(1)
    counts = torch.zeros(40, dtype=torch.int64)
    draws, batch = 400, 256
    for _ in range(draws):
        counts += torch.bincount(replay.draw(batch, generator), minlength=40)
    valid = [t % 10 * 4 + e for t in range(max(0, steps - 10), steps - n_step) for e in range(4)]
    seen = counts[valid].double()
    assert int(seen.sum()) == draws * batch, "something outside of the rectangle was drawn"
    expected = draws * batch / len(valid)
    chi_squared = float(((seen - expected) ** 2 / expected).sum())
    freedom = len(valid) - 1
    assert chi_squared < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.covers("A5")
def test_every_update_can_see_every_environment() -> None:
    replay = make(num_envs=64, capacity=20)
    fill(replay, 20)
    envs = replay.draw(4096, torch.Generator().manual_seed(0)) % 64
    assert envs.unique().numel() == 64


def test_ready_only_with_a_whole_window() -> None:
    replay = make(n_step=3)
    for steps, ready in ((0, False), (3, False), (4, True)):
        replay = make(n_step=3)
        fill(replay, steps)
        assert replay.ready is ready


def test_batch_is_reused() -> None:
    replay = make()
    fill(replay, 10)
    out = Batch.allocate(16, 2, 1)
    pointers = (out.observations.data_ptr(), out.action.data_ptr())
    again = replay.sample(16, torch.Generator().manual_seed(0), out)
    assert again is out
    assert (out.observations.data_ptr(), out.action.data_ptr()) == pointers


@pytest.mark.covers("A3")
def test_terminated_wins_over_truncated() -> None:
    replay = make(num_envs=1)
    rng = np.random.default_rng(0)
    shards = [random_generation(rng, 1, end=0.0, cut=0.0) for _ in range(2)]
    shards[0].terminated[:] = shards[0].truncated[:] = 1
    shards[0].final_index[0], shards[0].num_final = 0, 1
    shards[0].final_obs[0] = 5.0
    for generation, shard in enumerate(shards):
        replay.append(generation, [shard])
    assert float(replay.gather(torch.tensor([0])).bootstrap) == 0.0


def test_generations_must_follow_each_other() -> None:
    replay = make()
    shard = random_generation(np.random.default_rng(0), 4)
    replay.append(17, [shard])
    with pytest.raises(ValueError, match="expected generation 18, got 20"):
        replay.append(20, [shard])


def test_wrong_number_of_environments_is_refused() -> None:
    with pytest.raises(ValueError, match="3 environments, the replay has 4"):
        make().append(0, [random_generation(np.random.default_rng(0), 3)])


def test_truncation_without_final_observation_is_refused() -> None:
    shard = random_generation(np.random.default_rng(0), 4, end=0.0, cut=0.0)
    shard.truncated[2] = 1
    with pytest.raises(ValueError, match="1 truncated rows"):
        make().append(0, [shard])


@pytest.mark.covers("A8")
@pytest.mark.parametrize("name", ["obs", "reward", "action", "final_obs"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_values_never_get_in(name: str, value: float) -> None:
    shard = random_generation(np.random.default_rng(0), 4, end=0.0, cut=0.0)
    shard.truncated[1] = 1
    shard.final_index[0], shard.num_final = 1, 1
    shard.final_obs[0] = 0.0
    getattr(shard, name)[0] = value
    with pytest.raises(ValueError, match=f"non-finite {name}"):
        make().append(0, [shard])


def test_too_small_for_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer_size must be at least 16"):
        make(capacity=3, n_step=3)


def test_overflow_of_the_pool_is_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    replay = make(final_pool_size=2, capacity=50)
    with caplog.at_level(logging.WARNING):
        fill(replay, 50, end=0.5, cut=0.0)
    assert replay.cut_by_overflow > 10
    assert sum("final observation" in record.message for record in caplog.records) == 1
    weight = replay.gather(torch.arange(replay.num_startable)).weight
    assert int((weight == 0).sum()) == pytest.approx(replay.cut_by_overflow, abs=2)


def test_default_pool_does_not_overflow_at_episodes_of_fifty_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replay = make(capacity=200)
    rng = np.random.default_rng(0)
    for generation in range(1000):
        shard = random_generation(rng, 4, end=0.0, cut=0.0)
        if generation % 50 == 49:
            shard.truncated[:] = 1
            shard.final_index[:] = np.arange(4)
            shard.final_obs[:] = 0.0
            shard.num_final = 4
        replay.append(generation, [shard])
    assert replay.cut_by_overflow == 0
    assert not caplog.records


def test_mark_last_cut_leaves_ended_rows_and_other_columns() -> None:
    replay = make()
    rng = np.random.default_rng(0)
    shard = random_generation(rng, 4, end=0.0, cut=0.0)
    shard.terminated[2] = 1
    shard.final_index[0], shard.num_final, shard.final_obs[0] = 2, 1, 0.0
    replay.append(0, [shard])
    replay.mark_last_cut(1, 4)
    replay.append(1, [random_generation(rng, 4, end=0.0, cut=0.0)])
    batch = replay.gather(torch.arange(4))
    assert batch.weight.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert batch.bootstrap[2] == 0.0


@pytest.mark.parametrize("critic_obs_dim", [None, 3])
def test_bytes_are_those_allocated(critic_obs_dim: int | None) -> None:
    replay = make(critic_obs_dim=critic_obs_dim, capacity=100)
    tensors = [value for value in vars(replay).values() if isinstance(value, torch.Tensor)]
    held = sum(t.numel() * t.element_size() for t in tensors if t.numel() >= 100)
    # The pool's owners lie on the host: 8 bytes an entry. (100 // 50 + 1) * 4 entries.
    assert replay.nbytes == held + 12 * 8


@pytest.mark.covers("C1")
@pytest.mark.parametrize("steps", [6, 37])
def test_state_survives_a_file_and_goes_on_equal(steps: int) -> None:
    def go_on(replay: ReplayBuffer) -> Batch:
        rng = np.random.default_rng(9)
        for generation in range(steps, steps + 5):
            replay.append(generation, [random_generation(rng, 4)])
        return replay.sample(100, torch.Generator().manual_seed(4))

    replay = make(n_step=2, final_pool_size=5)
    fill(replay, steps)
    file = io.BytesIO()
    torch.save(replay.state_dict(), file)
    file.seek(0)
    restored = make(n_step=2, final_pool_size=5)
    restored.load_state_dict(torch.load(file, weights_only=True))
    a, b = go_on(replay), go_on(restored)
    for name in ("observations", "action", "reward", "discount", "bootstrap", "weight"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert restored.cut_by_overflow == replay.cut_by_overflow


@pytest.mark.covers("C6")
def test_state_of_other_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_envs 4 \(here 5\)"):
        make(num_envs=5).load_state_dict(make().state_dict())
