"""Running mean and variance in float64, merged by Chan's formula, and the reward scale built on them.

Both classes keep two sets of moments: `merged`, which every rank holds identically and which normalises, and
`pending`, what this rank has seen since the last merge. A merge moves pending into merged (all ranks' at
once, in rank order), so merging twice, or after a resume, changes nothing.

Chan, Golub, LeVeque (1983): deviations are taken from the mean of their own batch, and two sets are joined
with the term for the distance between their means. `E[x^2] - E[x]^2` is used nowhere: at an offset of 1e4 it
has lost every digit of a unit variance in float32.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Moments:
    """Count, mean and sum of squared deviations (M2) of vectors of `dim` features, in one float64 tensor.

    Attributes:
        data: `[1 + 2 * dim]` float64: count, mean, M2.
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        self.dim = dim
        self.data = torch.zeros(1 + 2 * dim, dtype=torch.float64, device=device)

    @property
    def count(self) -> Tensor:
        """Number of vectors seen, a view `[]`."""
        return self.data[0]

    @property
    def mean(self) -> Tensor:
        """Mean of each feature, a view `[dim]`."""
        return self.data[1 : 1 + self.dim]

    @property
    def m2(self) -> Tensor:
        """Sum of squared deviations from the mean, a view `[dim]`."""
        return self.data[1 + self.dim :]

    def variance(self) -> Tensor:
        """Population variance `[dim]`; 0 where nothing has been seen."""
        return self.m2 / self.count.clamp(min=1.0)

    def merge_(self, other: Tensor) -> None:
        """Joins another packed set `[1 + 2 * dim]` into this one, without waiting for the device."""
        dim = self.dim
        count_b, mean_b, m2_b = other[0], other[1 : 1 + dim], other[1 + dim :]
        total = self.count + count_b
        # A set with no samples must leave this one as it is, to the bit: share is exactly 0 then.
        share = count_b / total.clamp(min=1.0)
        delta = mean_b - self.mean
        self.m2.add_(m2_b).add_(delta * delta * (self.count * share))
        self.mean.add_(delta * share)
        self.count.copy_(total)

    def add_batch_(self, x: Tensor, weight: Tensor | None = None) -> None:
        """Joins a batch `[B, dim]`, in float64; `weight` `[B]` of 0 and 1 leaves rows out."""
        batch = x.to(torch.float64)
        packed = torch.empty_like(self.data)
        if weight is None:
            count = float(batch.shape[0])
            mean = batch.mean(0)
            packed[1 + self.dim :] = (batch - mean).square_().sum(0)
            packed[0] = count
        else:
            mask = weight.to(torch.float64)
            packed[0] = mask.sum()
            mean = (batch * mask[:, None]).sum(0) / packed[0].clamp(min=1.0)
            packed[1 + self.dim :] = ((batch - mean).square_() * mask[:, None]).sum(0)
        packed[1 : 1 + self.dim] = mean
        self.merge_(packed)


class RunningMeanStd:
    """Normaliser of observations: `(x - mean) / (std + eps)`, the identity while nothing has been merged.

    Args:
        dim: Number of features.
        eps: Added to the standard deviation, so that a constant feature gives 0 and never NaN.
        dtype: Type of `shift` and `scale`, that of the networks.

    Attributes:
        shift: `[dim]` mean in `dtype`.
        scale: `[dim]` `1 / (std + eps)` in `dtype`.
    """

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-2,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dim = dim
        self.eps = eps
        self.merged = Moments(dim, device)
        self.pending = Moments(dim, device)
        self.shift = torch.zeros(dim, dtype=dtype, device=device)
        self.scale = torch.ones(dim, dtype=dtype, device=device)

    @property
    def packed_size(self) -> int:
        """Number of float64 values that `pack` returns."""
        return 1 + 2 * self.dim

    def accumulate(self, x: Tensor | np.ndarray, cut: Tensor | np.ndarray | None = None) -> None:
        """Adds observations `[..., dim]` to the pending moments; each admitted one is given here once.

        Args:
            x: Observations.
            cut: `[...]` not 0 on rows that do not count.
        """
        device = self.shift.device
        weight = None
        # Looking first costs the host nothing; on a device it would wait, so there the mask is always used.
        if cut is not None and (isinstance(cut, Tensor) or cut.any()):
            weight = (as_tensor(cut, device) == 0).reshape(-1)
        self.pending.add_batch_(as_tensor(x, device).reshape(-1, self.dim), weight)

    def pack(self) -> Tensor:
        """Pending moments `[packed_size]` float64, to be gathered over the ranks."""
        return self.pending.data

    def merge(self, rows: Tensor) -> None:
        """Joins what all ranks had pending (`[W, packed_size]`, rank order) and forgets this rank's own."""
        for row in rows.unbind(0):
            self.merged.merge_(row)
        self.pending.data.zero_()
        self.refresh()

    def sync(self) -> None:
        """Merge for a single rank."""
        self.merge(self.pack().clone().unsqueeze(0))

    def refresh(self) -> None:
        """Recomputes `shift` and `scale` from the merged moments."""
        seen = self.merged.count > 0
        scale = 1.0 / (self.merged.variance().sqrt() + self.eps)
        self.shift.copy_(self.merged.mean)
        self.scale.copy_(torch.where(seen, scale, torch.ones_like(scale)))

    def normalize(self, x: Tensor) -> Tensor:
        """Normalised `x` `[..., dim]`. The mean goes first: folded into a bias, far offsets lose digits."""
        return x.to(self.shift.dtype).sub(self.shift).mul_(self.scale)

    def shared_tensors(self) -> dict[str, Tensor]:
        """What is the same on every rank; after writing into it call `refresh`."""
        return {"merged": self.merged.data}

    def local_tensors(self) -> dict[str, Tensor]:
        """What is this rank's alone."""
        return {"pending": self.pending.data}

    def load_local(self, state: dict[str, Tensor]) -> None:
        """Restores `local_tensors`."""
        self.pending.data.copy_(state["pending"])


class RewardScaler:
    """Scale of rewards from the running discounted return (FlashSAC, arXiv 2604.04539).

    `G_t = gamma * G_{t-1} + r_t` runs per environment in generation order and restarts after ends and cuts.
    The scale is `1 / max(sqrt(var G), max |G| / bound)`: unit deviation, unless that would push the largest
    return seen off the support `[-bound, bound]`. Replay keeps raw rewards; the scale is applied to what is
    sampled, so old samples follow the current scale.

    Args:
        gamma: Discount per step.
        bound: Largest return the support represents.
    """

    EPS = 1e-8

    def __init__(
        self,
        *,
        gamma: float,
        bound: float,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if bound <= 0:
            raise ValueError(f"reward scaling needs a positive support bound, got {bound}")
        self.gamma = gamma
        self.bound = bound
        self.merged = Moments(1, device)
        self.pending = Moments(1, device)
        self.merged_max = torch.zeros(1, dtype=torch.float64, device=device)
        self.pending_max = torch.zeros(1, dtype=torch.float64, device=device)
        self.returns = torch.zeros(0, dtype=torch.float64, device=device)
        self.scale = torch.ones((), dtype=dtype, device=device)

    @property
    def packed_size(self) -> int:
        """Number of float64 values that `pack` returns: count, mean, M2, maximum."""
        return 4

    def accumulate(
        self,
        reward: Tensor | np.ndarray,
        ended: Tensor | np.ndarray,
        cut: Tensor | np.ndarray,
    ) -> None:
        """Adds K generations, oldest first.

        Args:
            reward: `[K, N]` raw rewards.
            ended: `[K, N]` not 0 where an episode ended (terminated or truncated).
            cut: `[K, N]` not 0 on cut rows; their reward does not count.
        """
        device = self.returns.device
        rewards = as_tensor(reward, device).to(torch.float64)
        if self.returns.numel() == 0:
            self.returns = torch.zeros(rewards.shape[1], dtype=torch.float64, device=device)
        if rewards.shape[1] != self.returns.numel():
            raise ValueError(
                f"rewards of {rewards.shape[1]} environments, running returns of {self.returns.numel()}"
            )
        whole = (as_tensor(cut, device) == 0).to(torch.float64)
        goes_on = whole * (as_tensor(ended, device) == 0)
        seen = torch.empty_like(rewards)
        for k in range(rewards.shape[0]):
            self.returns.mul_(self.gamma).add_(rewards[k])
            seen[k] = self.returns
            self.returns.mul_(goes_on[k])
        self.pending.add_batch_(seen.reshape(-1, 1), whole.reshape(-1))
        largest = (seen.abs() * whole).amax().reshape(1)
        torch.maximum(self.pending_max, largest, out=self.pending_max)

    def mark_cut(self, env_lo: int, env_hi: int) -> None:
        """Restarts the returns of columns `[env_lo, env_hi)`, whose last row has become cut afterwards."""
        self.returns[env_lo:env_hi] = 0.0

    def pack(self) -> Tensor:
        """Pending statistics `[4]` float64."""
        return torch.cat([self.pending.data, self.pending_max])

    def merge(self, rows: Tensor) -> None:
        """Joins what all ranks had pending (`[W, 4]`, rank order) and forgets this rank's own."""
        for row in rows.unbind(0):
            self.merged.merge_(row[:3])
        torch.maximum(self.merged_max, rows[:, 3].amax().reshape(1), out=self.merged_max)
        self.pending.data.zero_()
        self.pending_max.zero_()
        self.refresh()

    def sync(self) -> None:
        """Merge for a single rank."""
        self.merge(self.pack().unsqueeze(0))

    def refresh(self) -> None:
        """Recomputes `scale`; 1 while every return seen is 0."""
        deviation = (self.merged.variance() + self.EPS).sqrt()
        divisor = torch.maximum(deviation, self.merged_max / self.bound)
        self.scale.copy_(torch.where(self.merged_max > 0, 1.0 / divisor, torch.ones_like(divisor)).squeeze(0))

    def shared_tensors(self) -> dict[str, Tensor]:
        """What is the same on every rank; after writing into it call `refresh`."""
        return {"merged": self.merged.data, "merged_max": self.merged_max}

    def local_tensors(self) -> dict[str, Tensor]:
        """What is this rank's alone; `returns` is empty before the first rewards."""
        return {"pending": self.pending.data, "pending_max": self.pending_max, "returns": self.returns}

    def load_local(self, state: dict[str, Tensor]) -> None:
        """Restores `local_tensors`."""
        self.pending.data.copy_(state["pending"])
        self.pending_max.copy_(state["pending_max"])
        self.returns = state["returns"].to(self.returns.device, torch.float64).clone()


def as_tensor(x: Tensor | np.ndarray, device: torch.device | str) -> Tensor:
    """`x` as a tensor on `device`; shares memory where it can, and copies read-only arrays."""
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(x if x.flags.writeable else x.copy())
    return x.to(device)
