"""Whether the installed torch can use a GPU at all, found without importing it (which takes seconds)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_GPU_LIBRARIES = ("libtorch_cuda.so", "libtorch_hip.so")


def torch_has_gpu_support() -> bool | None:
    """Looks for torch's GPU library beside the package; None where torch is not installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    return any((folder / name).exists() for name in _GPU_LIBRARIES)
