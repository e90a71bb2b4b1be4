"""LayerNorm and SiLU of `Q` stacked networks, and their gradients."""

from __future__ import annotations

import math
from typing import Any

from motrix_rl.algorithms.fastsac.loops.compiling import Array, exp, inlined, loop


@inlined
def _mean_and_rstd(x: Array, eps: float) -> Any:
    real = x.dtype.type
    share = real(1) / real(x.size)
    mean = real(0)
    for i in range(x.size):
        mean += x[i]
    mean *= share
    variance = real(0)
    for i in range(x.size):
        variance += (x[i] - mean) * (x[i] - mean)
    return mean, real(1) / math.sqrt(variance * share + real(eps))


@loop
def norm_silu(
    x: Array, gain: Array, offset: Array, slope: Array, active: Array, rstd: Array, eps: float
) -> None:
    """`silu(gain * layer_norm(x) + offset)`, with what its gradient needs.

    Args:
        x: `[Q, B, H]`; normalised afterwards.
        gain: `[Q, 1, H]`.
        offset: `[Q, 1, H]`.
        slope: `[Q, B, H]`, written: derivative of SiLU.
        active: `[Q, B, H]`, written: the result.
        rstd: `[Q, B]`, written: one over the row's standard deviation.
        eps: Added to the variance.
    """
    real = x.dtype.type
    count, batch, width = x.shape
    one = real(1)
    for q in range(count):
        g, o = gain[q, 0], offset[q, 0]
        for b in range(batch):
            row, s, y = x[q, b], slope[q, b], active[q, b]
            mean, r = _mean_and_rstd(row, eps)
            rstd[q, b] = r
            # Short loops over a row in the first cache: each vectorises, which one with all of it does not.
            for i in range(width):
                row[i] = (row[i] - mean) * r
            for i in range(width):
                y[i] = row[i] * g[i] + o[i]
            for i in range(width):
                s[i] = one / (one + exp(-y[i]))
            for i in range(width):
                z = y[i]
                y[i] = z * s[i]
                s[i] += y[i] - y[i] * s[i]


@loop
def norm_silu_only(x: Array, gain: Array, offset: Array, eps: float) -> None:
    """`silu(gain * layer_norm(x) + offset)` in place of `x`, where no gradient is wanted.

    Args:
        x: `[Q, B, H]`.
        gain: `[Q, 1, H]`.
        offset: `[Q, 1, H]`.
        eps: Added to the variance.
    """
    real = x.dtype.type
    count, batch, width = x.shape
    one = real(1)
    for q in range(count):
        g, o = gain[q, 0], offset[q, 0]
        for b in range(batch):
            row = x[q, b]
            mean, r = _mean_and_rstd(row, eps)
            for i in range(width):
                row[i] = (row[i] - mean) * r * g[i] + o[i]
            for i in range(width):
                row[i] /= one + exp(-row[i])


@loop
def norm_silu_backward(
    dy: Array,
    normed: Array,
    slope: Array,
    gain: Array,
    rstd: Array,
    d_gain: Array,
    d_offset: Array,
    d_bias: Array,
    parameters: bool,
) -> None:
    """Gradients of `norm_silu`.

    Args:
        dy: `[Q, B, H]` derivative by its result; that by its input afterwards.
        normed: `[Q, B, H]` as `norm_silu` left `x`.
        slope: `[Q, B, H]` from there, too.
        gain: `[Q, 1, H]`.
        rstd: `[Q, B]` from there.
        d_gain: `[Q, 1, H]`, written.
        d_offset: `[Q, 1, H]`, written.
        d_bias: `[Q, 1, H]`, written: derivative by what is added to every row of the input.
        parameters: Whether those three are wanted.
    """
    real = dy.dtype.type
    count, batch, width = dy.shape
    share = real(1) / real(width)
    for q in range(count):
        g, dg, do, db = gain[q, 0], d_gain[q, 0], d_offset[q, 0], d_bias[q, 0]
        if parameters:
            dg[:], do[:], db[:] = real(0), real(0), real(0)
        for b in range(batch):
            d, n, s, r = dy[q, b], normed[q, b], slope[q, b], rstd[q, b]
            for i in range(width):
                d[i] *= s[i]
            if parameters:
                for i in range(width):
                    do[i] += d[i]
                for i in range(width):
                    dg[i] += d[i] * n[i]
            mean, along = real(0), real(0)
            for i in range(width):
                h = d[i] * g[i]
                d[i] = h
                mean += h
                along += h * n[i]
            mean *= share
            along *= share
            for i in range(width):
                d[i] = (d[i] - mean - n[i] * along) * r
            if parameters:
                for i in range(width):
                    db[i] += d[i]
