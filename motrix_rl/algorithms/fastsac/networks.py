"""Actor and ensemble critic. Plain modules: no normaliser, no optimiser, no knowledge of the environment."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

NORM_EPS = 1e-5


class StackedMLP(nn.Module):
    """`Q` networks of one shape, evaluated as one batched computation.

    Hidden layers are linear, LayerNorm, SiLU; the last is linear. Weights are stacked `[Q, in, out]`, so
    that a layer is one `baddbmm` whatever Q is.

    Args:
        sizes: Width of the input, of each hidden layer and of the output.
        count: Number of networks Q.
        zero_head: Start the last layer at zero instead of at random.
        generator: Random numbers of the initial weights, uniform within `1 / sqrt(fan_in)`.
    """

    def __init__(
        self, sizes: list[int], count: int, *, zero_head: bool, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.sizes, self.count = sizes, count
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.gains, self.offsets = nn.ParameterList(), nn.ParameterList()
        last = len(sizes) - 2
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            weight, bias = torch.zeros(count, fan_in, fan_out), torch.zeros(count, 1, fan_out)
            if layer < last or not zero_head:
                bound = 1.0 / math.sqrt(fan_in)
                weight.uniform_(-bound, bound, generator=generator)
                bias.uniform_(-bound, bound, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))
            if layer < last:
                self.gains.append(nn.Parameter(torch.ones(count, 1, fan_out)))
                self.offsets.append(nn.Parameter(torch.zeros(count, 1, fan_out)))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs `[Q, B, out]` of all networks for `x` `[B, in]`."""
        h = x.expand(self.count, -1, -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if layer < last:
                normed = layer_norm(h, h.shape[-1:], eps=NORM_EPS)
                h = silu(torch.addcmul(self.offsets[layer], normed, self.gains[layer]))
        return h

    def as_sequential(self) -> nn.Sequential:
        """A copy of the only network (`Q = 1`) as `nn.Linear`, `nn.LayerNorm` and `nn.SiLU`, for export."""
        assert self.count == 1, "only a single network is a sequence"
        layers: list[nn.Module] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            linear = nn.Linear(fan_in, fan_out)
            linear.weight.data = self.weights[layer].detach()[0].t().cpu().clone()
            linear.bias.data = self.biases[layer].detach()[0, 0].cpu().clone()
            layers.append(linear)
            if layer < len(self.gains):
                norm = nn.LayerNorm(fan_out, eps=NORM_EPS)
                norm.weight.data = self.gains[layer].detach()[0, 0].cpu().clone()
                norm.bias.data = self.offsets[layer].detach()[0, 0].cpu().clone()
                layers += [norm, nn.SiLU()]
        return nn.Sequential(*layers)


class Actor(nn.Module):
    """Gaussian policy before tanh: H -> H/2 -> H/4 with LayerNorm and SiLU.

    One linear head gives mean and log standard deviation; it starts at zero, so the first policy is centred
    in the box whatever the observation.

    Args:
        obs_dim: Size O of the (normalised) observation.
        action_dim: Size A of the action.
        hidden_dim: Width H.
        log_std_min: Lowest log standard deviation.
        log_std_max: Highest log standard deviation.
        generator: Random numbers of the initial weights.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_dim: int,
        log_std_min: float,
        log_std_max: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.log_std_min, self.log_std_max = log_std_min, log_std_max
        sizes = [obs_dim, hidden_dim, hidden_dim // 2, hidden_dim // 4, 2 * action_dim]
        self.mlp = StackedMLP(sizes, 1, zero_head=True, generator=generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation `[B, A]` of the normal before tanh, for `obs` `[B, O]`."""
        mean, raw = self.mlp(obs).squeeze(0).chunk(2, dim=-1)
        half_range = 0.5 * (self.log_std_max - self.log_std_min)
        return mean, self.log_std_min + half_range * (torch.tanh(raw) + 1.0)


class EnsembleCritic(nn.Module):
    """Q distributional critics: H -> H/2 -> H/4 with LayerNorm and SiLU, K logits each.

    Args:
        obs_dim: Size C of the (normalised) critic observation.
        action_dim: Size A of the action.
        hidden_dim: Width H.
        num_critics: Ensemble size Q.
        num_atoms: Atoms K of each head.
        generator: Random numbers of the initial weights.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_dim: int,
        num_critics: int,
        num_atoms: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = [obs_dim + action_dim, hidden_dim, hidden_dim // 2, hidden_dim // 4, num_atoms]
        self.mlp = StackedMLP(sizes, num_critics, zero_head=False, generator=generator)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Logits `[Q, B, K]` of the return distributions of `obs` `[B, C]`, `action` `[B, A]`."""
        return self.mlp(torch.cat([obs, action], dim=-1))


class ActionScaling(nn.Module):
    """Map from the unit box to the environment's bounds: `a = scale * tanh(u) + bias`.

    Args:
        low: Lowest action per dimension.
        high: Highest action per dimension.
        dtype: Of the buffers.

    Raises:
        ValueError: A bound is infinite, or a range is empty.
    """

    scale: Tensor
    bias: Tensor

    def __init__(
        self, low: tuple[float, ...], high: tuple[float, ...], dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        low_t, high_t = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
        if not (torch.isfinite(low_t).all() and torch.isfinite(high_t).all() and (low_t < high_t).all()):
            raise ValueError(
                f"FastSAC needs finite action bounds with low < high, got low={low}, high={high}"
            )
        self.register_buffer("scale", ((high_t - low_t) / 2).to(dtype))
        self.register_buffer("bias", ((high_t + low_t) / 2).to(dtype))

    def forward(self, squashed: Tensor) -> Tensor:
        """Environment action of `squashed` `[..., A]` in the unit box."""
        return torch.addcmul(self.bias, squashed, self.scale)


class DeterministicPolicy(nn.Module):
    """Whole policy from raw observation to environment action, in standard layers only, for export.

    Args:
        actor: Its network, copied.
        scaling: Action bounds.
        shift: `[O]` observation mean.
        scale: `[O]` `1 / (std + eps)`.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, actor: Actor, scaling: ActionScaling, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.body = actor.mlp.as_sequential()
        head = cast(nn.Linear, self.body[-1])
        # The log deviation has no part in a deterministic policy.
        head.weight.data = head.weight.data[: actor.action_dim].clone()
        head.bias.data = head.bias.data[: actor.action_dim].clone()
        head.out_features = actor.action_dim
        self.scaling = scaling
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, obs: Tensor) -> Tensor:
        """Action `[B, A]` of `obs` `[B, O]`."""
        return self.scaling(torch.tanh(self.body((obs - self.shift) * self.scale)))
