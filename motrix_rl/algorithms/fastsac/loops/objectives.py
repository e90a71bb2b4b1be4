"""The objectives' own arithmetic: actions, targets, and what is derived by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from motrix_rl.algorithms.fastsac.loops.compiling import Array, exp, loop

#: How the targets of several critics become those that they regress on, and their values the actor's.
MODES = {"own": 0, "min": 1, "mean": 2}
_MIN, _MEAN = MODES["min"], MODES["mean"]
_LOG_2, _HALF_LOG_2PI = math.log(2.0), 0.5 * math.log(2.0 * math.pi)


@loop
def _exp_all(x: Array) -> None:
    """`e^x` in place, over all elements at once: rows may be shorter than a vector."""
    flat = x.reshape(-1)
    for i in range(flat.size):
        flat[i] = exp(flat[i])


@loop
def sample_action(
    head: Array,
    noise: Array,
    scale: Array,
    bias: Array,
    log_std_min: float,
    log_std_max: float,
    action: Array,
    log_prob: Array,
    squashed: Array,
    std: Array,
    d_std: Array,
) -> None:
    """Samples of the tanh-normal, their log-probability, and what the gradient needs.

    Args:
        head: `[B, 2A]` means and raw log deviations, as the actor's last layer gives them.
        noise: `[B, A]` standard normal.
        scale: `[A]` half the range of the environment's actions.
        bias: `[A]` its middle.
        log_std_min: Lowest log deviation.
        log_std_max: Highest log deviation.
        action: `[B, A]`, written: in the environment's space.
        log_prob: `[B]`, written: there, too.
        squashed: `[B, A]`, written: in (-1, 1).
        std: `[B, A]`, written: deviation before tanh.
        d_std: `[B, A]`, written: derivative of the log deviation by its raw value.
    """
    real = head.dtype.type
    batch, dims = noise.shape
    half_range, lowest = real(0.5 * (log_std_max - log_std_min)), real(log_std_min)
    constant = real(dims * (_HALF_LOG_2PI + 2.0 * _LOG_2))
    for a in range(dims):
        constant += math.log(scale[a])
    # The exponentials of all samples together, since a robot has few actions: each array holds its
    # exponents, then their exponentials.
    for b in range(batch):
        for a in range(dims):
            d_std[b, a] = real(-2) * abs(head[b, dims + a])
    _exp_all(d_std)
    for b in range(batch):
        log_prob[b] = -constant
        for a in range(dims):
            e = d_std[b, a]
            t = math.copysign((real(1) - e) / (real(1) + e), head[b, dims + a])
            std[b, a] = (t + real(1)) * half_range + lowest
            d_std[b, a] = (real(1) - t * t) * half_range
            log_prob[b] -= std[b, a] + real(0.5) * noise[b, a] * noise[b, a]
    _exp_all(std)
    for b in range(batch):
        for a in range(dims):
            squashed[b, a] = real(-2) * abs(head[b, a] + noise[b, a] * std[b, a])
    _exp_all(squashed)
    for b in range(batch):
        product = real(1)
        for a in range(dims):
            # u + softplus(-2u) = |u| + log(1 + e^(-2|u|)), and tanh u is made of the same exponential.
            u, e = head[b, a] + noise[b, a] * std[b, a], squashed[b, a]
            product *= real(1) + e
            if product > real(1e30):
                log_prob[b] += real(2) * math.log(product)
                product = real(1)
            log_prob[b] += real(2) * abs(u)
            y = math.copysign((real(1) - e) / (real(1) + e), u)
            squashed[b, a] = y
            action[b, a] = y * scale[a] + bias[a]
        log_prob[b] += real(2) * math.log(product)


@loop
def sample_action_backward(
    d_action: Array,
    noise: Array,
    scale: Array,
    log_alpha: Array,
    squashed: Array,
    std: Array,
    d_std: Array,
    d_head: Array,
) -> None:
    """Gradient of `mean(alpha * log pi) + f(action)` by the actor's head, at fixed noise.

    Args:
        d_action: `[B, A]` derivative of `f` by the environment's action.
        noise: `[B, A]` that `sample_action` was given.
        scale: `[A]`, likewise.
        log_alpha: `[1]`.
        squashed: `[B, A]` that it wrote.
        std: `[B, A]`, likewise.
        d_std: `[B, A]`, likewise.
        d_head: `[B, 2A]`, written.
    """
    batch, dims = noise.shape
    real = d_head.dtype.type
    share = exp(log_alpha[0]) / real(batch)
    for b in range(batch):
        for a in range(dims):
            # d log pi/du = 2 tanh(u); d action/du = scale (1 - tanh(u)^2); d log pi/d log_std = -1 beside.
            y = squashed[b, a]
            d_u = d_action[b, a] * scale[a] * (real(1) - y * y) + real(2) * y * share
            d_head[b, a] = d_u
            d_head[b, dims + a] = (d_u * noise[b, a] * std[b, a] - share) * d_std[b, a]


@loop
def softmax(logits: Array) -> None:
    """Distributions `[Q, B, K]` in place of their logits."""
    real = logits.dtype.type
    count, batch, atoms = logits.shape
    for q in range(count):
        for b in range(batch):
            row = logits[q, b]
            top = row[0]
            for k in range(1, atoms):
                top = row[k] if row[k] > top else top
            for k in range(atoms):
                row[k] -= top
    _exp_all(logits)
    for q in range(count):
        for b in range(batch):
            row = logits[q, b]
            total = real(0)
            for k in range(atoms):
                total += row[k]
            total = real(1) / total
            for k in range(atoms):
                row[k] *= total


@loop
def _expect(probs: Array, support: Array) -> Any:
    value = probs.dtype.type(0)
    for k in range(probs.size):
        value += probs[k] * support[k]
    return value


@loop
def soft_target(
    logits: Array,
    support: Array,
    reward: Array,
    discount: Array,
    log_prob: Array,
    log_alpha: Array,
    mode: int,
    out: Array,
) -> None:
    """`losses.soft_target`.

    Args:
        logits: `[Q, B, K]` of the target critics; overwritten.
        support: `[K]`.
        reward: `[B]`.
        discount: `[B]`.
        log_prob: `[B]` of the next actions.
        log_alpha: `[1]`.
        mode: One of `MODES`.
        out: `[Q or 1, B, K]`, written.
    """
    softmax(logits)
    real = logits.dtype.type
    count, batch, atoms = logits.shape
    alpha, v_min = exp(log_alpha[0]), support[0]
    spacing, top = (support[atoms - 1] - v_min) / real(atoms - 1), real(atoms - 1)
    position = np.empty(atoms, logits.dtype)
    for q in range(out.shape[0]):
        for b in range(batch):
            row, to = logits[q, b], out[q, b]
            if mode == _MEAN:
                for other in range(1, count):
                    for k in range(atoms):
                        row[k] += logits[other, b, k]
                for k in range(atoms):
                    row[k] /= real(count)
            elif mode == _MIN:
                least = _expect(row, support)
                for other in range(1, count):
                    value = _expect(logits[other, b], support)
                    if value < least:
                        row, least = logits[other, b], value
            soft = reward[b] - discount[b] * alpha * log_prob[b]
            start = (soft + (discount[b] - real(1)) * v_min) / spacing
            for k in range(atoms):
                at = start + discount[b] * real(k)
                at = real(0) if at < real(0) else at
                position[k] = top if at > top else at
            to[:] = real(0)
            for k in range(atoms):
                # A NaN has no index; it stays one in the mass, for the finite check to find.
                left = int(position[k]) if position[k] == position[k] else 0
                moved = row[k] * (position[k] - real(left))
                to[left] += row[k] - moved
                to[min(left + 1, atoms - 1)] += moved


@loop
def critic_gradient(logits: Array, target: Array, weight: Array) -> None:
    """Derivative of `losses.critic_loss` in place of the logits.

    Args:
        logits: `[Q, B, K]`.
        target: `[Q or 1, B, K]`, each row's sum 1.
        weight: `[B]`.
    """
    softmax(logits)
    real = logits.dtype.type
    count, batch, atoms = logits.shape
    own = target.shape[0] > 1
    for q in range(count):
        for b in range(batch):
            row, goal, share = logits[q, b], target[q if own else 0, b], weight[b] / real(batch)
            for k in range(atoms):
                row[k] = (row[k] - goal[k]) * share


@loop
def value_gradient(logits: Array, support: Array, mode: int, values: Array) -> None:
    """Derivative of `-mean_B(losses.combine_values)` in place of the logits.

    Args:
        logits: `[Q, B, K]`.
        support: `[K]`.
        mode: `min` or `mean` of `MODES`; ties of a minimum share.
        values: `[Q, B]`, written: expected values.
    """
    softmax(logits)
    real = logits.dtype.type
    count, batch, atoms = logits.shape
    for q in range(count):
        for b in range(batch):
            values[q, b] = _expect(logits[q, b], support)
    for b in range(batch):
        least, ties = values[0, b], 1
        for q in range(1, count):
            if values[q, b] < least:
                least, ties = values[q, b], 1
            elif values[q, b] == least:
                ties += 1
        for q in range(count):
            row, value = logits[q, b], values[q, b]
            share = real(-1) / real(batch * count)
            if mode == _MIN:
                share = real(-1) / real(batch * ties) if value == least else real(0)
            for k in range(atoms):
                row[k] *= (support[k] - value) * share
