"""Forward and backward of `StackedMLP` on the host, written out, without autograd.

At these sizes a host update is half matrix products and half everything else. Written out, gradients land in
the flat buffer directly (no zeroing, no accumulation), activations stay in the same memory from update to
update (fresh pages cost more than the arithmetic on them), everything between two products is one loop over
rows (`loops`), and nothing is spent on a graph. `networks.StackedMLP.forward` says what is computed; a test
holds the two together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import loops
from motrix_rl.algorithms.fastsac.networks import NORM_EPS, StackedMLP


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
        # Something stands in for the gradients of a network that is not trained.
        self._grads = grads = {
            name: [torch.empty_like(p.detach()) if p.grad is None else p.grad for p in getattr(mlp, name)]
            for name in ("weights", "biases", "gains", "offsets")
        }
        like, hidden = self._weights[0], mlp.sizes[1:-1]

        def buffers() -> list[Tensor]:
            return [like.new_empty(mlp.count, batch, width) for width in hidden]

        self.input = like.new_empty(batch, mlp.sizes[0])
        self.output = like.new_empty(mlp.count, batch, mlp.sizes[-1])
        self._linear, self._active, self._upstream = buffers(), buffers(), buffers()
        # Views are made once: an update makes a hundred calls, and each costs microseconds.
        self._below = [self.input.expand(mlp.count, -1, -1), *self._active]
        self._below_t = [below.transpose(1, 2) for below in self._below]
        self._weights_t = [weight.transpose(1, 2) for weight in self._weights]
        slopes = buffers()
        rstds = [like.new_empty(mlp.count, batch) for _ in hidden]
        self._forward_rows = [
            tuple(tensor.numpy() for tensor in row)
            for row in zip(self._linear, self._gains, self._offsets, slopes, self._active, rstds, strict=True)
        ]
        self._backward_rows = [
            tuple(tensor.numpy() for tensor in row)
            for row in zip(
                self._upstream, self._linear, slopes, self._gains, rstds,
                grads["gains"], grads["offsets"], grads["biases"][:-1], strict=True,
            )
        ]  # fmt: skip

    def forward(self, *, gradient: bool = True) -> Tensor:
        """Outputs `[Q, B, out]` for `self.input` `[B, in]`; without `gradient`, `backward` may not follow."""
        h = self._below[0]
        for layer, linear in enumerate(self._linear):
            torch.baddbmm(self._biases[layer], h, self._weights[layer], out=linear)
            x, gain, offset, *kept = self._forward_rows[layer]
            if gradient:
                loops.norm_silu(x, gain, offset, *kept, NORM_EPS)
                h = self._active[layer]
            else:
                loops.norm_silu_only(x, gain, offset, NORM_EPS)
                h = linear
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
            torch.sum(upstream, 1, keepdim=True, out=grads["biases"][-1])
            torch.bmm(self._below_t[-1], upstream, out=grads["weights"][-1])
        for layer in reversed(range(len(self._linear))):
            below = self._upstream[layer]
            torch.bmm(upstream, self._weights_t[layer + 1], out=below)
            loops.norm_silu_backward(*self._backward_rows[layer], parameters)
            upstream = below
            if parameters:
                torch.bmm(self._below_t[layer], upstream, out=grads["weights"][layer])
        if input_from is None:
            return None
        return torch.bmm(upstream, self._weights_t[0][..., input_from:]).sum(0)
