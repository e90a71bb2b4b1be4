"""Whether two runs came to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from motrix_rl.checkpoint import CheckpointStore, load_file


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested containers, with where it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{at}")
    else:
        yield path, value


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, NaN included."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.numpy().tobytes() == b.numpy().tobytes()
        )
    return type(a) is type(b) and repr(a) == repr(b)


def checkpoint_state(run_dir: Path, step: int) -> dict[str, dict[str, Any]]:
    """The contents of a run's newest checkpoint, which must be that of ``step``: file, then path, then value."""
    newest = CheckpointStore(run_dir / "checkpoints", 3).newest_valid(print)
    assert newest is not None
    assert newest.step == step
    return {name: dict(leaves(load_file(newest, name))) for name in newest.files if name.endswith(".pt")}


def differences(first: Path, second: Path, step: int) -> list[str]:
    """What differs between the checkpoints of two runs; network, replay, worlds, random numbers."""
    a, b = checkpoint_state(first, step), checkpoint_state(second, step)
    assert a.keys() == b.keys(), f"files {sorted(a)} and {sorted(b)}"
    assert any(name.startswith("collector") for name in a), "no state of a collector was saved"
    assert any(name.startswith("replay") for name in a), "no replay was saved"
    found: list[str] = []
    for name in a:
        found += [f"{name}{path} is in one only" for path in a[name].keys() ^ b[name].keys()]
        shared = [path for path in a[name] if path in b[name]]
        found += [f"{name}{path}" for path in shared if not same(a[name][path], b[name][path])]
    return found
