"""FastSAC's arithmetic as pure functions of tensors.

Symbols: B batch, A action dimensions, Q critics, K atoms `z` on `[v_min, v_max]`, spaced `dz`.

Every mean over the batch divides by B, also where weights are 0: the mean over ranks of such means is the
mean over all their samples, whatever the weights, which a division by the sum of weights would not give.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample of the tanh-normal and its log-probability in the unit box.

    `log pi(y) = log N(u) - sum log(1 - tanh(u)^2)`, with `log(1 - tanh(u)^2) = 2 (log 2 - u -
    softplus(-2u))`, which keeps its digits where tanh saturates (Haarnoja et al. 2018, appendix C).

    Args:
        mean: `[B, A]`.
        log_std: `[B, A]`.
        noise: `[B, A]` standard normal.

    Returns:
        `(y, log_prob)`: `[B, A]` in (-1, 1) and `[B]`. For an action `scale * y + bias`, subtract
        `sum(log scale)`.
    """
    u = torch.addcmul(mean, noise, log_std.exp())
    # -noise^2/2 - log_std - log(2 pi)/2 - 2 (log 2 - u - softplus(-2u)), constants gathered behind the sum.
    terms = 2.0 * (u + softplus(-2.0 * u)) - log_std - 0.5 * noise.square()
    constant = mean.shape[-1] * (HALF_LOG_2PI + 2.0 * LOG_2)
    return torch.tanh(u), terms.sum(-1) - constant


def target_entropy(
    config: FastSACConfig, action_low: tuple[float, ...], action_high: tuple[float, ...]
) -> float:
    """Target entropy H in the space of the log-probability, that of the environment's actions.

    Two ways to say it, and they differ by the scale of the actions:

    - `target_entropy_ratio`: `H = -ratio * A`, in scaled space, as public recipes state it. A range of +-r
      adds `log r` a dimension, so the same number asks for other noise on every robot: ratio 0 on ranges of
      about +-6.7 is -1.9 a dimension in the unit box (a deviation of 0.04), while on +-0.1 it is +2.3, more
      than the box can hold (at most log 2), and alpha grows without end.
    - `target_entropy_std`: the entropy of a normal of that deviation in the unit box,
      `H_unit = 0.5 * A * log(2 pi e sigma^2)`, moved to scaled space by `sum(log scale)`. Means the same
      noise, as a share of the range, everywhere.
    """
    action_dim = len(action_low)
    if config.target_entropy_std is None:
        return -config.target_entropy_ratio * action_dim
    unit = 0.5 * action_dim * math.log(2.0 * math.pi * math.e * config.target_entropy_std**2)
    log_scale = sum(math.log((high - low) / 2.0) for low, high in zip(action_low, action_high, strict=True))
    return unit + log_scale


def atoms(
    v_min: float, v_max: float, num_atoms: int, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Support `z` `[K]`."""
    return torch.linspace(v_min, v_max, num_atoms, dtype=torch.float64).to(dtype).to(device)


def project(probs: Tensor, reward: Tensor, discount: Tensor, v_min: float, v_max: float) -> Tensor:
    """C51 projection of `reward + discount * z` onto the atoms (Bellemare et al. 2017, algorithm 1).

    The mass of a shifted atom at fractional position `b` is split between `floor(b)` and its right neighbour
    with shares `1 - f` and `f`, `f = b - floor(b)`. On an atom f is 0 and all mass stays (splitting it
    between floor and ceil, as often written, loses it there).

    Args:
        probs: `[Q, B, K]`, each row's sum 1.
        reward: `[B]`.
        discount: `[B]`, already 0 where nothing is bootstrapped.
        v_min: Lowest atom.
        v_max: Highest atom.

    Returns:
        `[Q, B, K]`, each row's sum 1.
    """
    num_critics, batch, num_atoms = probs.shape
    top = num_atoms - 1
    dz = (v_max - v_min) / top
    # Position on the grid of r + d * (v_min + j dz): (r + (d - 1) v_min) / dz + d * j.
    start = (reward + (discount - 1.0) * v_min) / dz
    grid = torch.arange(num_atoms, dtype=probs.dtype, device=probs.device)
    position = torch.addcmul(start[:, None], discount[:, None], grid).clamp_(0.0, float(top))
    lower = position.floor()
    fraction = position - lower
    # A NaN casts to an index far outside: clamped, it stays a NaN in the mass, for the finite check to find.
    left = lower.to(torch.int64).clamp_(0, top).expand(num_critics, batch, num_atoms)
    right = (left + 1).clamp_(max=top)
    moved = probs * fraction
    out = torch.zeros_like(probs)
    out.scatter_add_(-1, left, probs - moved)
    out.scatter_add_(-1, right, moved)
    return out


def expected_value(probs: Tensor, support: Tensor) -> Tensor:
    """Means `[...]` of distributions `[..., K]` over `support` `[K]`."""
    return probs @ support


def select_target(probs: Tensor, support: Tensor, mode: str) -> Tensor:
    """Distribution `[Q or 1, B, K]` that the critics regress on, before the projection.

    Args:
        probs: `[Q, B, K]` of the target critics.
        support: `[K]`.
        mode: `own` keeps each its own, `min` takes per sample the one of lowest mean, `mean` their average.
    """
    if mode == "own":
        return probs
    if mode == "mean":
        return probs.mean(0, keepdim=True)
    lowest = expected_value(probs, support).argmin(0)
    index = lowest[None, :, None].expand(1, -1, probs.shape[-1])
    return probs.gather(0, index)


def soft_target(
    target_logits: Tensor,
    support: Tensor,
    reward: Tensor,
    discount: Tensor,
    entropy_bonus: Tensor,
    *,
    v_min: float,
    v_max: float,
    mode: str,
) -> Tensor:
    """Projected soft Bellman target `[Q or 1, B, K]`.

    Args:
        target_logits: `[Q, B, K]` of the target critics at (s', a').
        support: `[K]`.
        reward: `[B]` n-step reward, scaled.
        discount: `[B]` `bootstrap * gamma^n`.
        entropy_bonus: `[B]` `-alpha * log pi(a'|s')`.
        v_min: Lowest atom.
        v_max: Highest atom.
        mode: As in `select_target`.
    """
    probs = select_target(torch.softmax(target_logits, -1), support, mode)
    return project(probs, reward + discount * entropy_bonus, discount, v_min, v_max)


def critic_loss(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """`sum_i mean_B[weight * cross entropy(target_i, p_i)]`, a scalar.

    Args:
        logits: `[Q, B, K]`.
        target: `[Q or 1, B, K]`, no gradient.
        weight: `[B]`.
    """
    cross_entropy = -(target * log_softmax(logits, -1)).sum(-1)
    return (cross_entropy * weight).sum() / weight.shape[0]


def combine_values(values: Tensor, mode: str) -> Tensor:
    """The critics' values `[Q, B]` as the one `[B]` that the actor ascends: their `mean` or `min`."""
    return values.mean(0) if mode == "mean" else values.amin(0)


def actor_loss(log_prob: Tensor, value: Tensor, alpha: Tensor) -> Tensor:
    """`mean_B[alpha * log pi - Q]`, a scalar. Unweighted: a cut row's own observation is sound."""
    return (alpha * log_prob - value).mean()


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
    """`-exp(log_alpha) * (log pi + H)`, a scalar; `log_prob` `[]`, a mean, carries no gradient.

    Its derivative by `log_alpha` is its own value, which is what the agent writes as the gradient.
    """
    return log_alpha.exp() * -(log_prob.detach() + entropy)
