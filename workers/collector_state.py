"""A collector's state at a scheduled checkpoint: written by it, taken into the checkpoint by its learner.

Only the deterministic mode saves it. A collector writes its file before it acts in the generation at which
the checkpoint is taken, and then says so in its row of the control block; the learner waits for that word, and
moves the file into the checkpoint. Importing this module imports no torch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.checkpoint import load_file, open_checkpoint, write_object

if TYPE_CHECKING:
    import numpy as np
    import torch

    from motrix_rl.envs.base import BatchEnv

PENDING = ".collectors"
ARRAY_KEYS = frozenset({"array", "dtype", "shape"})


def collector_file(index: int) -> str:
    """File of one collector's state inside a checkpoint."""
    return f"collector{index}.pt"


def pending_file(run_dir: str, generation: int, index: int) -> Path:
    """Where a collector leaves its state until the learner takes it."""
    return Path(run_dir) / "checkpoints" / PENDING / f"{generation:09d}" / collector_file(index)


def write_state(path: Path, env: BatchEnv, rng: np.random.Generator, generator: torch.Generator) -> None:
    """Writes what the next generation depends on: worlds and both streams of random numbers.

    Raises:
        OSError: the disk refused.
        MotrixError: the backend cannot save its worlds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"env": env.state_dict(), "rng": rng.bit_generator.state, "generator": generator.get_state()}
    write_object(path.with_suffix(".tmp"), _with_tensors(state))
    os.replace(path.with_suffix(".tmp"), path)


def read_state(path: Path, env: BatchEnv, rng: np.random.Generator, generator: torch.Generator) -> None:
    """Restores what :func:`write_state` wrote, out of a committed checkpoint."""
    state = _with_arrays(load_file(open_checkpoint(path.parent), path.name))
    env.load_state_dict(state["env"])
    rng.bit_generator.state = state["rng"]
    generator.set_state(state["generator"])


def take_state(staging: Path, generation: int, index: int) -> None:
    """Moves a collector's state into a checkpoint being written; nothing where it could not be saved."""
    source = staging.parent / PENDING / f"{generation:09d}" / collector_file(index)
    if source.exists():
        os.replace(source, staging / collector_file(index))


def discard_pending(checkpoints: Path, up_to: int) -> None:
    """Removes states that no checkpoint took, up to a generation."""
    folder = checkpoints / PENDING
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.name.isdigit() and int(entry.name) <= up_to:
            shutil.rmtree(entry, ignore_errors=True)


def _with_tensors(value: Any) -> Any:
    """Arrays as tensors of bytes, which a checkpoint loads without running code; unsigned integers included."""
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        raw = np.frombuffer(value.tobytes(), np.uint8).copy()
        return {"array": torch.from_numpy(raw), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, dict):
        return {key: _with_tensors(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_tensors(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any) -> Any:
    import numpy as np

    if isinstance(value, dict):
        if value.keys() == ARRAY_KEYS:
            raw = value["array"].numpy().tobytes()
            return np.frombuffer(raw, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
        return {key: _with_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    return value
