"""What a CUDA graph does, on a CPU: operations in the order of one run, on the memory of that run, without Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Piece = Callable[[], None]
aten: Any = torch.ops.aten
NOT_IN_A_GRAPH = (
    aten._local_scalar_dense.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.lift_fresh.default,  # torch.tensor(...) of Python's numbers
)


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype is torch.bool


class _Operations(TorchDispatchMode):
    """Notes every operation that is dispatched, backward passes included, with its very tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in NOT_IN_A_GRAPH or (func is aten.index.Tensor and any(_is_mask(x) for x in args[1])):
            raise RuntimeError(f"{func}: the host waits for the device, or has a number of its own")
        out = func(*args, **(kwargs or {}))
        self.noted.append((func, args, kwargs or {}, out))
        return out


class Tape:
    """Records pieces as `CudaRecorder` does.

    Attributes:
        recorded: Pieces so far.
        replays: Times that one was replayed.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.replays = 0

    def warm_up(self, piece: Piece) -> None:
        """Runs it."""
        piece()

    def record(self, piece: Piece) -> Piece:
        """Runs it, and returns its operations."""
        self.recorded += 1
        with _Operations() as operations:
            piece()
        return lambda: self._replay(operations.noted)

    @torch.no_grad()
    def _replay(self, noted: list[tuple[Any, Any, Any, Any]]) -> None:
        self.replays += 1
        for func, args, kwargs, out in noted:
            again = func(*args, **kwargs)
            for was, now in zip(tree_leaves(out), tree_leaves(again), strict=True):
                # Views, and what was written in place, are the memory itself.
                if isinstance(was, Tensor) and was.numel() and was.data_ptr() != now.data_ptr():
                    was.copy_(now)
