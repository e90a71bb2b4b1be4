"""What every test of this folder is marked with: it needs a GPU, and is skipped without one, with the reason."""

from __future__ import annotations

import importlib.util

import pytest


def _no_gpu() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no CUDA device here"


_REASON = _no_gpu()
NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(_REASON is not None, reason=_REASON or "")]
