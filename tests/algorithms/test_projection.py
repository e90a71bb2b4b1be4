"""The C51 projection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.algorithms.fastsac import loops, losses
from motrix_rl.algorithms.fastsac.losses import atoms, select_target

Projection = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, float], torch.Tensor]


def loop_project(
    probs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, v_min: float, v_max: float
) -> torch.Tensor:
    """The host's projection, which is a part of its soft target: without an entropy bonus it is all of it."""
    support = atoms(v_min, v_max, probs.shape[-1], probs.dtype, "cpu")
    nothing, out = torch.zeros_like(reward), torch.empty_like(probs)
    given = (probs.log(), support, reward, discount, nothing, nothing[:1])
    loops.soft_target(*(x.numpy() for x in given), loops.MODES["own"], out.numpy())
    return out


both = pytest.mark.parametrize("project", [losses.project, loop_project])


def random_probs(critics: int, batch: int, num_atoms: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.softmax(3.0 * torch.randn(critics, batch, num_atoms, generator=g, dtype=torch.float64), -1)


@pytest.mark.covers("A1")
@given(
    seed=st.integers(0, 2**31),
    num_atoms=st.integers(2, 60),
    low=st.floats(-50.0, -0.1),
    width=st.floats(0.2, 100.0),
    reward=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    discount=st.floats(0.0, 1.0),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@both
def test_mass_is_one_for_every_input(
    project: Projection,
    seed: int,
    num_atoms: int,
    low: float,
    width: float,
    reward: list[float],
    discount: float,
    dtype: torch.dtype,
) -> None:
    probs = random_probs(2, len(reward), num_atoms, seed).to(dtype)
    out = project(probs, torch.tensor(reward, dtype=dtype), torch.full((len(reward),), discount, dtype=dtype),
                  low, low + width)  # fmt: skip
    assert (out >= 0).all()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(out.sum(-1), torch.ones(2, len(reward), dtype=dtype), rtol=0, atol=tolerance)


@pytest.mark.covers("A1")
@given(
    seed=st.integers(0, 2**31),
    num_atoms=st.integers(3, 60),
    discount=st.floats(0.0, 1.0),
    where=st.floats(0.0, 1.0),
)
@both
def test_mean_is_preserved_where_nothing_is_clipped(
    project: Projection, seed: int, num_atoms: int, discount: float, where: float
) -> None:
    # Support [-2, 2]; shifted atoms stay inside for |r| <= 2 (1 - d).
    reward = torch.tensor([2.0 * (1.0 - discount) * (2.0 * where - 1.0)], dtype=torch.float64)
    probs = random_probs(1, 1, num_atoms, seed)
    support = atoms(-2.0, 2.0, num_atoms, torch.float64, "cpu")
    out = project(probs, reward, torch.tensor([discount], dtype=torch.float64), -2.0, 2.0)
    expected = reward + discount * (probs @ support)[0]
    torch.testing.assert_close((out @ support)[0], expected, rtol=0, atol=1e-10)


@pytest.mark.covers("A1")
@pytest.mark.parametrize("shift", range(-4, 5))
@both
def test_whole_steps_move_all_mass_from_atom_to_atom(project: Projection, shift: int) -> None:
    # 5 atoms on [-2, 2] are one apart: a reward of `shift` moves every atom onto another one.
    probs = torch.tensor([[[0.1, 0.2, 0.3, 0.15, 0.25]]], dtype=torch.float64)
    out = project(probs, torch.tensor([float(shift)], dtype=torch.float64), torch.ones(1).double(), -2.0, 2.0)
    expected = torch.zeros(5, dtype=torch.float64)
    for atom in range(5):
        expected[min(4, max(0, atom + shift))] += probs[0, 0, atom]
    torch.testing.assert_close(out[0, 0], expected, rtol=0, atol=1e-15)


@pytest.mark.covers("A1")
@both
def test_unmoved_distribution_is_itself(project: Projection) -> None:
    probs = random_probs(2, 4, 51, 0)
    out = project(probs, torch.zeros(4).double(), torch.ones(4).double(), -5.0, 5.0)
    torch.testing.assert_close(out, probs, rtol=0, atol=1e-12)


@pytest.mark.covers("A1", "A2")
@both
def test_by_hand(project: Projection) -> None:
    # Atoms -1, 0, 1; r = 0.5, d = 0.5: shifted atoms 0, 0.5, 1.
    # p = (0.2, 0.3, 0.5): 0 gets 0.2 + 0.3 / 2 = 0.35; 1 gets 0.3 / 2 + 0.5 = 0.65.
    probs = torch.tensor([[[0.2, 0.3, 0.5]]])
    out = project(probs, torch.tensor([0.5]), torch.tensor([0.5]), -1.0, 1.0)
    torch.testing.assert_close(out, torch.tensor([[[0.0, 0.35, 0.65]]]))


@pytest.mark.covers("A3")
@both
def test_without_bootstrap_only_the_reward_counts(project: Projection) -> None:
    # d = 0: all mass at r = 0.25 on atoms -1, 0, 1: 0.75 on 0 and 0.25 on 1, whatever the distribution was.
    probs = random_probs(2, 1, 3, 5)
    out = project(probs, torch.tensor([0.25]).double(), torch.zeros(1).double(), -1.0, 1.0)
    torch.testing.assert_close(out, torch.tensor([0.0, 0.75, 0.25]).double().expand(2, 1, 3))


def test_targets_of_the_three_modes() -> None:
    # Means on (-1, 0, 1): critic 0: 0.8 and -0.8; critic 1: 0 and 0. `min` is critic 1 for the first sample.
    a = torch.tensor([[0.0, 0.2, 0.8], [0.8, 0.2, 0.0]])
    b = torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    probs, support = torch.stack([a, b]), torch.tensor([-1.0, 0.0, 1.0])
    assert torch.equal(select_target(probs, support, "own"), probs)
    torch.testing.assert_close(select_target(probs, support, "mean"), ((a + b) / 2)[None])
    torch.testing.assert_close(select_target(probs, support, "min"), torch.stack([b[0], a[1]])[None])
