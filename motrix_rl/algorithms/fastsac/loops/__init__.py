"""What lies between the matrix products of a host update, as loops that Numba compiles.

What takes ten tensor operations, and as many passes over memory, is one pass here over rows that stay in the first
cache. `networks` and `losses` say what is computed, in the same symbols (H a layer's width); tests hold them
together. All arrays are of one float type, and written in place. A NaN in a row of the input is one in that row of
the output: the finite check must find it.

Compiled at the first call of a process with each float type, and kept on disk (`compiling`): the first run after an
installation spends some seconds on it. What is kept is known by the text of this folder, so the loops get from
elsewhere nothing but arguments.
"""

from motrix_rl.algorithms.fastsac.loops.layers import norm_silu, norm_silu_backward, norm_silu_only
from motrix_rl.algorithms.fastsac.loops.objectives import (
    MODES,
    critic_gradient,
    sample_action,
    sample_action_backward,
    soft_target,
    softmax,
    value_gradient,
)

__all__ = [
    "MODES",
    "critic_gradient",
    "norm_silu",
    "norm_silu_backward",
    "norm_silu_only",
    "sample_action",
    "sample_action_backward",
    "soft_target",
    "softmax",
    "value_gradient",
]
