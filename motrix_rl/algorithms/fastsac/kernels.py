"""Forward and backward of `StackedMLP` on the host, written out, without autograd.

At these sizes a host update is half matrix products and half everything else. Written out, gradients land in
the flat buffer directly (no zeroing, no accumulation), activations stay in the same memory from update to
update (fresh pages cost more than the arithmetic on them), SiLU's exponential is computed once instead of
twice, and nothing is spent on a graph. `networks.StackedMLP.forward` says what is computed; a test holds the
two together.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from motrix_rl.algorithms.fastsac.networks import NORM_EPS, StackedMLP

# Overloads named outright: resolving them costs as much as a small kernel.
_layer_norm = torch.ops.aten.native_layer_norm.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


class StackedKernel:
    """One network's activations for a batch of fixed size, and its two passes over them.

    Everything returned is a view of this object's buffers and holds until the next `forward`.

    Args:
        mlp: Parameters; with `backward(parameters=True)` their `.grad` must exist and is overwritten.
        batch: Rows B.
    """

    def __init__(self, mlp: StackedMLP, batch: int) -> None:
        self.batch, self.count = batch, mlp.count
        self._weights = [p.detach() for p in mlp.weights]
        self._biases = [p.detach() for p in mlp.biases]
        self._gains = [p.detach() for p in mlp.gains]
        self._offsets = [p.detach() for p in mlp.offsets]
        self._grads = {
            name: [p.grad for p in getattr(mlp, name)] for name in ("weights", "biases", "gains", "offsets")
        }
        like, hidden = self._weights[0], mlp.sizes[1:-1]

        def buffers() -> list[Tensor]:
            return [like.new_empty(mlp.count, batch, width) for width in hidden]

        self.input = like.new_empty(batch, mlp.sizes[0])
        self.output = like.new_empty(mlp.count, batch, mlp.sizes[-1])
        # LayerNorm's kernel is faster with a weight of ones than with none.
        self._plain = [([width], like.new_ones(width), like.new_zeros(width)) for width in hidden]
        self._linear, self._sigmoid, self._active = buffers(), buffers(), buffers()
        self._scratch, self._upstream = buffers(), buffers()
        self._normed: list[Tensor] = []
        self._moments: list[tuple[Tensor, Tensor]] = []
        # Views are made once: an update makes hundreds of calls, and each costs microseconds.
        self._below = [self.input.expand(mlp.count, -1, -1), *self._active]
        self._below_t = [below.transpose(1, 2) for below in self._below]
        self._weights_t = [weight.transpose(1, 2) for weight in self._weights]

    def forward(self, *, keep: bool) -> Tensor:
        """Outputs `[Q, B, out]` for `self.input` `[B, in]`.

        Args:
            keep: Whether `backward` will follow; without it less is computed and kept.
        """
        self._normed.clear()
        self._moments.clear()
        h = self._below[0]
        for layer, linear in enumerate(self._linear):
            torch.baddbmm(self._biases[layer], h, self._weights[layer], out=linear)
            normed, mean, rstd = _layer_norm(linear, *self._plain[layer], NORM_EPS)
            gain, offset = self._gains[layer], self._offsets[layer]
            if keep:
                self._normed.append(normed)
                self._moments.append((mean, rstd))
                z = torch.addcmul(offset, normed, gain, out=self._scratch[layer])
                torch.sigmoid(z, out=self._sigmoid[layer])
                h = torch.mul(z, self._sigmoid[layer], out=self._active[layer])
            else:
                h = silu(torch.addcmul(offset, normed, gain, out=normed), inplace=True)
        return torch.baddbmm(self._biases[-1], h, self._weights[-1], out=self.output)

    def backward(self, upstream: Tensor, *, parameters: bool, input_from: int | None = None) -> Tensor | None:
        """Gradients of a loss whose derivative by `output` is `upstream` `[Q, B, out]`.

        Args:
            upstream: Read only.
            parameters: Write the parameters' gradients.
            input_from: Also return the derivative by the input's columns from here on; None for no such
                thing.

        Returns:
            `[B, in - input_from]` or None.
        """
        grads = self._grads
        if parameters:
            self._linear_grads(len(self._linear), upstream)
        for layer in reversed(range(len(self._linear))):
            dy = torch.bmm(upstream, self._weights_t[layer + 1], out=self._upstream[layer])
            active, sigmoid = self._active[layer], self._sigmoid[layer]
            # d silu(z)/dz = s + z s (1 - s) = s + y - y s, from what the forward pass has kept.
            dz = torch.addcmul(active, active, sigmoid, value=-1.0, out=self._scratch[layer])
            dz.add_(sigmoid).mul_(dy)
            if parameters:
                torch.sum(dz, 1, keepdim=True, out=grads["offsets"][layer])
                torch.sum(
                    torch.mul(dz, self._normed[layer], out=dy), 1, keepdim=True, out=grads["gains"][layer]
                )
            dz.mul_(self._gains[layer])
            mean, rstd = self._moments[layer]
            linear, width = self._linear[layer], self._plain[layer][0]
            upstream = _layer_norm_backward(dz, linear, width, mean, rstd, None, None, [True, False, False])[
                0
            ]
            if parameters:
                self._linear_grads(layer, upstream)
        if input_from is None:
            return None
        return torch.bmm(upstream, self._weights_t[0][..., input_from:]).sum(0)

    def _linear_grads(self, layer: int, upstream: Tensor) -> None:
        torch.sum(upstream, 1, keepdim=True, out=self._grads["biases"][layer])
        torch.bmm(self._below_t[layer], upstream, out=self._grads["weights"][layer])
