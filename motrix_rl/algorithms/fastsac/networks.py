"""Actor and ensemble critic. Plain modules: no normaliser, no optimiser, no knowledge of the environment."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Actor(nn.Module):
    """Gaussian policy before tanh: H -> H/2 -> H/4 with LayerNorm and SiLU.

    One linear head gives mean and log standard deviation; it starts at zero, so the first policy is centred in the
    box whatever the observation.

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
        widths = [obs_dim, hidden_dim, hidden_dim // 2, hidden_dim // 4]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:])
        self.head = nn.Linear(widths[-1], 2 * action_dim)
        with torch.no_grad():
            for linear in self.linears:
                layer = cast(nn.Linear, linear)
                bound = 1.0 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)
            self.head.weight.zero_()
            self.head.bias.zero_()

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation `[B, A]` of the normal before tanh, for `obs` `[B, O]`."""
        x = obs
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = F.silu(norm(linear(x)))
        mean, raw = self.head(x).chunk(2, dim=-1)
        half_range = 0.5 * (self.log_std_max - self.log_std_min)
        return mean, self.log_std_min + half_range * (torch.tanh(raw) + 1.0)


class EnsembleCritic(nn.Module):
    """Q distributional critics evaluated as one batched computation.

    Weights are stacked `[Q, in, out]`, and every layer is one `baddbmm` over the ensemble.

    Args:
        obs_dim: Size of the (normalised) critic observation.
        action_dim: Size of the action.
        hidden_dim: Width H; layers are H, H/2, H/4.
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
        self.num_critics, self.num_atoms = num_critics, num_atoms
        widths = [obs_dim + action_dim, hidden_dim, hidden_dim // 2, hidden_dim // 4, num_atoms]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.gains, self.offsets = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip(widths[:-1], widths[1:], strict=True):
            bound = 1.0 / math.sqrt(fan_in)
            weight = torch.empty(num_critics, fan_in, fan_out).uniform_(-bound, bound, generator=generator)
            bias = torch.empty(num_critics, 1, fan_out).uniform_(-bound, bound, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))
            if len(self.weights) < len(widths) - 1:
                self.gains.append(nn.Parameter(torch.ones(num_critics, 1, fan_out)))
                self.offsets.append(nn.Parameter(torch.zeros(num_critics, 1, fan_out)))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Logits `[Q, B, K]` of the return distributions of `obs` `[B, C]`, `action` `[B, A]`."""
        x = torch.cat([obs, action], dim=-1).expand(self.num_critics, -1, -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                normed = F.layer_norm(x, x.shape[-1:])
                x = F.silu(torch.addcmul(self.offsets[layer], normed, self.gains[layer]))
        return x


class ActionScaling(nn.Module):
    """Map from the unit box to the environment's bounds: `a = scale * tanh(u) + bias`.

    Args:
        low: Lowest action per dimension.
        high: Highest action per dimension.

    Raises:
        ValueError: A bound is infinite, or a range is empty.
    """

    scale: Tensor
    bias: Tensor

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        low_t, high_t = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
        if not (torch.isfinite(low_t).all() and torch.isfinite(high_t).all() and (low_t < high_t).all()):
            raise ValueError(f"FastSAC needs finite action bounds with low < high, got low={low}, high={high}")
        self.register_buffer("scale", ((high_t - low_t) / 2).to(dtype))
        self.register_buffer("bias", ((high_t + low_t) / 2).to(dtype))

    def forward(self, squashed: Tensor) -> Tensor:
        """Environment action of `squashed` `[..., A]` in the unit box."""
        return squashed * self.scale + self.bias


class DeterministicPolicy(nn.Module):
    """Whole policy from raw observation to environment action, as one plain module for export.

    Args:
        actor: Actor on normalised observations.
        scaling: Action bounds.
        shift: `[O]` observation mean.
        scale: `[O]` `1 / (std + eps)`.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, actor: Actor, scaling: ActionScaling, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.actor = actor
        self.scaling = scaling
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, obs: Tensor) -> Tensor:
        """Action `[B, A]` of `obs` `[B, O]`."""
        mean, _ = self.actor((obs - self.shift) * self.scale)
        return self.scaling(torch.tanh(mean))
