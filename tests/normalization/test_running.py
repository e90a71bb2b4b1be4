"""Moments and the observation normaliser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.normalization.running import Moments, RunningMeanStd


def synced(*batches: np.ndarray) -> RunningMeanStd:
    norm = RunningMeanStd(batches[0].shape[-1])
    for batch in batches:
        norm.accumulate(batch)
    norm.sync()
    return norm


@pytest.mark.covers("D11")
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    spread=st.floats(0.0, 1e6),
    seed=st.integers(0, 2**31),
)
def test_merge_over_ranks_equals_statistics_of_the_concatenation(
    counts: list[int], spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(rng.normal() * spread, 1.0, size=(count, 3)) for count in counts]
    rows = []
    for part in parts:
        rank = RunningMeanStd(3)
        rank.accumulate(part)
        rows.append(rank.pack().clone())
    norm = RunningMeanStd(3)
    norm.merge(torch.stack(rows))
    whole = np.concatenate(parts)
    assert float(norm.merged.count) == len(whole)
    np.testing.assert_allclose(norm.merged.mean, whole.mean(0), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(norm.merged.variance(), whole.var(0), rtol=1e-8, atol=1e-9 * (1 + spread))


@pytest.mark.covers("D11")
def test_far_offset_in_float32_keeps_the_variance() -> None:
    rng = np.random.default_rng(0)
    data = (1e4 + rng.normal(size=(200, 64, 5))).astype(np.float32)
    norm = synced(*data)
    exact = data.reshape(-1, 5).astype(np.float64).var(0)
    np.testing.assert_allclose(norm.merged.variance(), exact, rtol=1e-3)
    normalized = norm.normalize(torch.from_numpy(data.reshape(-1, 5)))
    assert normalized.dtype == torch.float32
    # (x - mean) / (std + 0.01): deviation 1 / 1.01, and no digits lost beyond float32's own 1e-3 at 1e4.
    assert float(normalized.mean().abs()) < 2e-3
    assert abs(float(normalized.std()) - 1 / 1.01) < 5e-3


@pytest.mark.covers("D11")
def test_syncing_twice_or_after_a_resume_changes_nothing() -> None:
    norm = synced(np.random.default_rng(0).normal(3.0, 2.0, size=(100, 4)))
    before = norm.merged.data.clone()
    norm.sync()
    norm.merge(torch.zeros(3, norm.packed_size, dtype=torch.float64))
    assert torch.equal(norm.merged.data, before)

    resumed = RunningMeanStd(4)
    resumed.shared_tensors()["merged"].copy_(norm.shared_tensors()["merged"])
    resumed.load_local(norm.local_tensors())
    resumed.refresh()
    resumed.sync()
    assert torch.equal(resumed.merged.data, before)
    assert torch.equal(resumed.scale, norm.scale)


def test_identity_until_something_was_merged() -> None:
    norm = RunningMeanStd(3)
    x = torch.randn(5, 3)
    norm.sync()
    assert torch.equal(norm.normalize(x), x)
    norm.accumulate(x)  # pending only: the same statistics until all ranks merge
    assert torch.equal(norm.normalize(x), x)


def test_constant_feature_gives_zero() -> None:
    norm = synced(np.full((50, 2), 7.25))
    out = norm.normalize(torch.full((4, 2), 7.25))
    assert torch.equal(out, torch.zeros(4, 2))


def test_formula() -> None:
    # mean of 1, 3 is 2, population deviation 1: (3 - 2) / (1 + 0.01).
    norm = synced(np.array([[1.0], [3.0]]))
    assert float(norm.normalize(torch.tensor([[3.0]]))) == pytest.approx(1 / 1.01)


def test_cut_rows_do_not_count() -> None:
    data = np.random.default_rng(0).normal(size=(3, 4, 2))
    cut = np.zeros((3, 4), np.uint8)
    cut[1, 2] = 1
    data[1, 2] = 1e9
    norm = RunningMeanStd(2)
    norm.accumulate(data, cut)
    kept = data.reshape(-1, 2)[cut.reshape(-1) == 0]
    np.testing.assert_allclose(norm.pending.mean, kept.mean(0))
    np.testing.assert_allclose(norm.pending.variance(), kept.var(0))


def test_read_only_arrays_are_taken_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    data = np.ones((2, 3), np.float32)
    data.flags.writeable = False
    RunningMeanStd(3).accumulate(data)
    assert not recwarn.list


def test_empty_merge_is_exact() -> None:
    moments = Moments(2)
    moments.add_batch_(torch.randn(7, 2))
    before = moments.data.clone()
    moments.merge_(torch.zeros(5, dtype=torch.float64))
    assert torch.equal(moments.data, before)
