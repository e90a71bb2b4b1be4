"""Copies from shards (numpy arrays or tensors, host or device) into the replay's storage."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from motrix_rl.normalization.running import as_tensor


def host(x: Any) -> np.ndarray:
    """A flag or index array on the host; on a device ring this waits for the few bytes it needs."""
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()


def write(target: Tensor, source: Any, name: str | None = None, lo: int = 0) -> None:
    """Copies an array or tensor into storage; with a `name`, refuses non-finite values found on the host."""
    if isinstance(source, np.ndarray):
        _check_finite(source, name, lo)
        if target.device.type == "cpu":
            np.copyto(target.numpy(), source)
            return
    target.copy_(as_tensor(source, source.device if isinstance(source, Tensor) else "cpu"), non_blocking=True)


def take(source: Any, index: Tensor, device: torch.device, name: str) -> Tensor:
    """Rows `index` of a shard's final observations, on `device`."""
    if isinstance(source, np.ndarray):
        rows = source[index.numpy()]
        _check_finite(rows, name, 0)
        return torch.from_numpy(rows).to(device)
    return source.index_select(0, index.to(source.device)).to(device)


def _check_finite(values: np.ndarray, name: str | None, lo: int) -> None:
    """Environments replace non-finite rows and mark them cut; one that gets here is a defect."""
    if name is None or np.isfinite(values).all():
        return
    row = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))[0])
    raise ValueError(f"non-finite {name} of environment row {lo + row} reached the replay")
