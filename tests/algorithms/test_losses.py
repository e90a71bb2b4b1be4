"""Losses against arithmetic by hand, log-probabilities against torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions

from motrix_rl.algorithms.fastsac import losses
from motrix_rl.algorithms.fastsac.config import FastSACConfig


@pytest.mark.covers("A2")
@given(seed=st.integers(0, 2**31), scale=st.floats(0.05, 20.0), bias=st.floats(-5.0, 5.0))
def test_log_prob_equals_the_transformed_normal(seed: int, scale: float, bias: float) -> None:
    g = torch.Generator().manual_seed(seed)
    mean, log_std, noise = (torch.randn(6, 4, generator=g, dtype=torch.float64) for _ in range(3))
    squashed, log_prob = losses.squash(mean, log_std - 1.0, noise)
    log_prob = log_prob - 4 * math.log(scale)
    base = distributions.Independent(distributions.Normal(mean, (log_std - 1.0).exp()), 1)
    policy = distributions.TransformedDistribution(
        base,
        [
            distributions.TanhTransform(cache_size=1),
            distributions.AffineTransform(bias, scale, event_dim=1),
        ],
    )
    # Evaluated forwards from u, so that the reference does not lose digits to atanh.
    u = mean + noise * (log_std - 1.0).exp()
    reference = base.log_prob(u)
    for transform in policy.transforms:
        out = transform(u)
        jacobian = transform.log_abs_det_jacobian(u, out)
        reference = reference - (jacobian.sum(-1) if jacobian.dim() > 1 else jacobian)
        u = out
    torch.testing.assert_close(log_prob, reference, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scale * squashed + bias, u)


@pytest.mark.covers("A2")
def test_log_prob_stays_finite_where_tanh_saturates() -> None:
    mean = torch.tensor([[30.0, -30.0]])
    _, log_prob = losses.squash(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    # -log(1 - tanh(30)^2) = 2 (30 - log 2) to first order: 58.61 each; the normal's density is 1/sqrt(2 pi).
    assert float(log_prob) == pytest.approx(
        2 * (2 * (30 - math.log(2)) - 0.5 * math.log(2 * math.pi)), rel=1e-6
    )


@pytest.mark.covers("A2")
def test_critic_loss_by_hand() -> None:
    # Two critics, one sample, two atoms; p = softmax of (0, log 3) = (1/4, 3/4) and of (0, 0) = (1/2, 1/2).
    logits = torch.tensor([[[0.0, math.log(3.0)]], [[0.0, 0.0]]])
    target = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]])
    # -(0.5 log 1/4 + 0.5 log 3/4) - log 1/2 = 0.836988 + 0.693147
    loss = losses.critic_loss(logits, target, torch.ones(1))
    assert float(loss) == pytest.approx(0.5 * math.log(4) + 0.5 * math.log(4 / 3) + math.log(2))
    # With a second sample of weight 0 the mean is over two: half.
    doubled = losses.critic_loss(logits.repeat(1, 2, 1), target.repeat(1, 2, 1), torch.tensor([1.0, 0.0]))
    assert float(doubled) == pytest.approx(float(loss) / 2)


@pytest.mark.covers("A2")
def test_soft_target_by_hand() -> None:
    # Atoms -1, 0, 1, target p = (1/3, 1/3, 1/3), r = 0.2, bootstrap * gamma = 0.5, alpha = 0.4, log pi = -1:
    # r' = 0.2 + 0.5 * 0.4 = 0.4; shifted atoms -0.1, 0.4, 0.9.
    # atom -1: 0.1 / 3; atom 0: (0.9 + 0.6 + 0.1) / 3; atom 1: (0.4 + 0.9) / 3.
    target = losses.soft_target(
        torch.zeros(1, 1, 3),
        torch.tensor([-1.0, 0.0, 1.0]),
        torch.tensor([0.2]),
        torch.tensor([0.5]),
        torch.tensor([0.4]),
        v_min=-1.0,
        v_max=1.0,
        mode="own",
    )
    torch.testing.assert_close(target, torch.tensor([[[0.1, 1.6, 1.3]]]) / 3)


@pytest.mark.covers("A2")
def test_actor_loss_by_hand() -> None:
    # Values of two critics (1, 3) and (2, 0): means 1.5 and 1.5, minima 1 and 0. alpha = 0.5, log pi = 2 and -1.
    values = torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    log_prob, alpha = torch.tensor([2.0, -1.0]), torch.tensor(0.5)
    mean = losses.actor_loss(log_prob, losses.combine_values(values, "mean"), alpha)
    low = losses.actor_loss(log_prob, losses.combine_values(values, "min"), alpha)
    assert float(mean) == pytest.approx(((1.0 - 1.5) + (-0.5 - 1.5)) / 2)
    assert float(low) == pytest.approx(((1.0 - 1.0) + (-0.5 - 0.0)) / 2)


@pytest.mark.covers("A2")
def test_temperature_loss_by_hand_and_its_gradient() -> None:
    # exp(log 0.1) * -(mean(-3, -1) + H), H = 1.5: -0.1 * (-2 + 1.5) = 0.05. Entropy 2 is above H: alpha falls.
    log_alpha = torch.tensor([math.log(0.1)], requires_grad=True)
    loss = losses.temperature_loss(log_alpha, torch.tensor([-3.0, -1.0]).mean(), 1.5)
    assert float(loss.detach()) == pytest.approx(0.05)
    (gradient,) = torch.autograd.grad(loss.sum(), log_alpha)
    assert torch.equal(gradient, loss.detach())
    assert float(gradient) > 0


@pytest.mark.covers("A2")
def test_target_entropy_modes() -> None:
    low, high = (-2.0, -2.0), (2.0, 2.0)
    ratio = FastSACConfig(target_entropy_std=None, target_entropy_ratio=0.5)
    assert losses.target_entropy(ratio, low, high) == -1.0
    # 2 * 0.5 * log(2 pi e 0.01) in the unit box, plus 2 log 2 for the ranges of +-2.
    std = FastSACConfig(target_entropy_std=0.1)
    expected = math.log(2 * math.pi * math.e * 0.01) + 2 * math.log(2)
    assert losses.target_entropy(std, low, high) == pytest.approx(expected)


@pytest.mark.covers("A2")
def test_target_entropy_by_deviation_is_that_of_a_narrow_policy() -> None:
    # A policy of deviation 0.05 around 0 in a box of +-3 (tanh is the identity there) must sit at its own target.
    g = torch.Generator().manual_seed(0)
    shape = (200_000, 1)
    log_std = torch.full(shape, math.log(0.05))
    _, log_prob = losses.squash(torch.zeros(shape), log_std, torch.randn(shape, generator=g))
    entropy = -float((log_prob - math.log(3.0)).mean())
    target = losses.target_entropy(FastSACConfig(target_entropy_std=0.05), (-3.0,), (3.0,))
    assert entropy == pytest.approx(target, abs=0.01)
