"""Every window of a replay against a slow oracle, over random streams."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.replay.buffer import ReplayBuffer
from tests.replay.oracle import Oracle, random_generation

GAMMA = 0.9


def check_all_windows(replay: ReplayBuffer, oracle: Oracle) -> None:
    """Gathers every startable row at once and compares each with the oracle."""
    starts = oracle.starts()
    assert replay.num_startable == len(starts)
    if not starts:
        assert not replay.ready
        return
    rows = torch.tensor([time % replay.capacity * replay.num_envs + env for time, env in starts])
    batch = replay.gather(rows)
    for i, (time, env) in enumerate(starts):
        want = oracle.window(time, env)
        where = f"window at time {time}, env {env}"
        np.testing.assert_array_equal(batch.obs[i], want.obs, where)
        np.testing.assert_array_equal(batch.action[i], want.action, where)
        assert float(batch.weight[i]) == want.weight, where
        assert float(batch.discount[i]) == pytest.approx(want.discount, rel=1e-6) or not want.weight, where
        assert torch.isfinite(batch.next_obs[i]).all(), where
        if not want.weight:
            np.testing.assert_array_equal(batch.next_obs[i], want.obs, where)
            continue
        assert float(batch.reward[i]) == pytest.approx(want.reward, rel=1e-5, abs=1e-6), where
        assert float(batch.bootstrap[i]) == want.bootstrap, where
        if want.bootstrap:
            np.testing.assert_array_equal(batch.next_obs[i], want.next_obs, where)
        if want.critic_obs is not None:
            assert batch.critic_obs is not None and batch.next_critic_obs is not None
            np.testing.assert_array_equal(batch.critic_obs[i], want.critic_obs, where)
            if want.bootstrap:
                np.testing.assert_array_equal(batch.next_critic_obs[i], want.next_critic_obs, where)


@pytest.mark.covers("A3", "A4", "R9")
@given(
    seed=st.integers(0, 2**31),
    envs=st.integers(1, 5),
    capacity=st.integers(6, 12),
    n_step=st.integers(1, 5),
    steps=st.integers(0, 40),
    pool=st.integers(0, 12),
    split=st.booleans(),
    as_tensors=st.booleans(),
    critic=st.booleans(),
)
def test_windows_equal_the_oracle(
    seed: int,
    envs: int,
    capacity: int,
    n_step: int,
    steps: int,
    pool: int,
    split: bool,
    as_tensors: bool,
    critic: bool,
) -> None:
    rng = np.random.default_rng(seed)
    critic_dim = 3 if critic else None
    # Poisoned: a read of anything unwritten shows as NaN.
    replay = ReplayBuffer(
        num_envs=envs,
        capacity=capacity,
        obs_dim=2,
        critic_obs_dim=critic_dim,
        action_dim=1,
        n_step=n_step,
        gamma=GAMMA,
        final_pool_size=pool,
        poison=True,
    )
    oracle = Oracle(capacity, n_step, GAMMA, pool)
    for generation in range(steps):
        whole = random_generation(rng, envs, critic_obs_dim=critic_dim)
        middle = envs // 2
        parts = [whole.columns(0, middle), whole.columns(middle, envs)] if split and middle else [whole]
        replay.append(generation, [part.tensors() for part in parts] if as_tensors else parts)
        oracle.append(whole)
        if rng.random() < 0.1:
            lo, hi = sorted(rng.integers(0, envs + 1, size=2).tolist())
            replay.mark_last_cut(lo, hi)
            oracle.mark_last_cut(lo, hi)
    check_all_windows(replay, oracle)
    assert replay.cut_by_overflow == oracle.overflow


@pytest.mark.covers("A4")
def test_full_buffer_never_crosses_the_write_pointer() -> None:
    # Observation = time. A window that crossed from the newest to the oldest row would go back in time.
    replay = ReplayBuffer(
        num_envs=2, capacity=8, obs_dim=1, critic_obs_dim=None, action_dim=1, n_step=3, gamma=GAMMA
    )
    rng = np.random.default_rng(0)
    for time in range(8 * 3 + 5):
        shard = random_generation(rng, 2, obs_dim=1, end=0.0, cut=0.0)
        shard.obs[:] = time
        shard.reward[:] = 1.0
        replay.append(time, [shard])
        if replay.ready:
            batch = replay.sample(64, torch.Generator().manual_seed(time))
            assert torch.equal(batch.next_obs, batch.obs + 3)
            assert float(batch.obs.min()) >= max(0, time - 7)
            assert float(batch.next_obs.max()) <= time
            # 1 + 0.9 + 0.81 and 0.9^3
            assert torch.allclose(batch.reward, torch.full((64,), 2.71))
            assert torch.allclose(batch.discount, torch.full((64,), 0.729))


@pytest.mark.covers("A8")
def test_window_starting_on_a_cut_row_has_no_weight_and_no_window_reaches_past_one() -> None:
    replay = ReplayBuffer(
        num_envs=1, capacity=16, obs_dim=1, critic_obs_dim=None, action_dim=1, n_step=4, gamma=GAMMA
    )
    rng = np.random.default_rng(0)
    for time in range(12):
        shard = random_generation(rng, 1, obs_dim=1, end=0.0, cut=0.0)
        shard.obs[:] = time
        shard.reward[:] = 1.0
        if time == 5:
            shard.cut[:] = 1
            shard.reward[:] = 0.0
        replay.append(time, [shard])
    batch = replay.gather(torch.arange(8))
    assert batch.weight.tolist() == [1, 1, 1, 1, 1, 0, 1, 1]
    # From 3: rewards of rows 3 and 4, then row 5 is cut, so bootstrap from 5's own observation with gamma^2.
    assert float(batch.reward[3]) == pytest.approx(1.9)
    assert float(batch.discount[3]) == pytest.approx(0.81)
    assert batch.next_obs.squeeze(-1).tolist() == [4, 5, 5, 5, 5, 5, 10, 11]
    assert batch.bootstrap.tolist() == [1.0] * 8


@pytest.mark.covers("R8")
def test_shards_and_one_piece_are_equal_to_the_bit() -> None:
    def build(split: bool) -> ReplayBuffer:
        rng = np.random.default_rng(3)
        replay = ReplayBuffer(
            num_envs=6, capacity=10, obs_dim=4, critic_obs_dim=None, action_dim=2, n_step=2, gamma=GAMMA
        )
        for generation in range(23):
            whole = random_generation(rng, 6, obs_dim=4, action_dim=2)
            parts = [whole.columns(0, 1), whole.columns(1, 4), whole.columns(4, 6)] if split else [whole]
            replay.append(generation, parts)
        return replay

    one, many = build(False), build(True)
    for seed in range(5):
        a = one.sample(50, torch.Generator().manual_seed(seed))
        b = many.sample(50, torch.Generator().manual_seed(seed))
        for name in ("observations", "action", "reward", "discount", "bootstrap", "weight"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name
