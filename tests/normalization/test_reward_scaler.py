"""The reward scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motrix_rl.normalization.running import RewardScaler


def stream(seed: int, steps: int, envs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    reward = rng.normal(0.3, 1.0, size=(steps, envs)).astype(np.float32)
    ended = (rng.random((steps, envs)) < 0.1).astype(np.uint8)
    cut = ((rng.random((steps, envs)) < 0.05) & (ended == 0)).astype(np.uint8)
    reward[cut == 1] = 0.0
    return reward, ended, cut


def slow_returns(reward: np.ndarray, ended: np.ndarray, cut: np.ndarray, gamma: float) -> np.ndarray:
    """Every running return that counts, one environment at a time."""
    seen = []
    for env in range(reward.shape[1]):
        running = 0.0
        for step in range(reward.shape[0]):
            running = gamma * running + float(reward[step, env])
            if not cut[step, env]:
                seen.append(running)
            if ended[step, env] or cut[step, env]:
                running = 0.0
    return np.array(seen)


def test_equals_a_slow_loop_whatever_the_chunks() -> None:
    reward, ended, cut = stream(0, 60, 5)
    scaler = RewardScaler(gamma=0.9, bound=5.0)
    for lo, hi in ((0, 1), (1, 7), (7, 60)):
        scaler.accumulate(reward[lo:hi], ended[lo:hi], cut[lo:hi])
        scaler.sync()
    seen = slow_returns(reward, ended, cut, 0.9)
    assert float(scaler.merged.count) == seen.size
    assert float(scaler.merged.variance()) == pytest.approx(seen.var(), rel=1e-9)
    assert float(scaler.merged_max) == pytest.approx(np.abs(seen).max(), rel=1e-12)
    expected = 1 / max(np.sqrt(seen.var() + 1e-8), np.abs(seen).max() / 5.0)
    assert float(scaler.scale) == pytest.approx(expected, rel=1e-6)


@pytest.mark.covers("D11")
def test_ranks_merge_to_the_statistics_of_all() -> None:
    parts = [stream(seed, 30, envs) for seed, envs in ((1, 3), (2, 7))]
    ranks = [RewardScaler(gamma=0.95, bound=5.0) for _ in parts]
    for rank, part in zip(ranks, parts, strict=True):
        rank.accumulate(*part)
    rows = torch.stack([rank.pack() for rank in ranks])
    for rank in ranks:
        rank.merge(rows)
    seen = np.concatenate([slow_returns(*part, 0.95) for part in parts])
    for rank in ranks:
        assert float(rank.merged.variance()) == pytest.approx(seen.var(), rel=1e-9)
        assert float(rank.merged_max) == pytest.approx(np.abs(seen).max(), rel=1e-12)
    assert torch.equal(ranks[0].merged.data, ranks[1].merged.data)
    before = ranks[0].scale.clone()
    ranks[0].sync()
    assert torch.equal(ranks[0].scale, before)


def test_largest_return_stays_on_the_support() -> None:
    # A steady reward of 1 with gamma 0.99 nears 100 with little variance left: the maximum rules the scale.
    scaler = RewardScaler(gamma=0.99, bound=5.0)
    ones, zeros = np.ones((2000, 1), np.float32), np.zeros((2000, 1), np.uint8)
    scaler.accumulate(ones, zeros, zeros)
    scaler.sync()
    assert float(scaler.merged_max) * float(scaler.scale) == pytest.approx(5.0, rel=1e-6)


def test_no_reward_yet_keeps_the_scale_at_one() -> None:
    scaler = RewardScaler(gamma=0.99, bound=5.0)
    zeros = np.zeros((3, 2), np.uint8)
    scaler.accumulate(zeros.astype(np.float32), zeros, zeros)
    scaler.sync()
    assert float(scaler.scale) == 1.0


def test_mark_cut_restarts_those_columns_only() -> None:
    scaler = RewardScaler(gamma=1.0, bound=5.0)
    ones, zeros = np.ones((4, 3), np.float32), np.zeros((4, 3), np.uint8)
    scaler.accumulate(ones, zeros, zeros)
    scaler.mark_cut(1, 2)
    assert scaler.returns.tolist() == [4.0, 0.0, 4.0]


def test_other_number_of_environments_is_refused() -> None:
    scaler = RewardScaler(gamma=1.0, bound=5.0)
    scaler.accumulate(np.ones((1, 3), np.float32), np.zeros((1, 3)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="4 environments"):
        scaler.accumulate(np.ones((1, 4), np.float32), np.zeros((1, 4)), np.zeros((1, 4)))
