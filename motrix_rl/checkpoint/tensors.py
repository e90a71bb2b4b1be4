"""Plain data with tensors, to a file and back; nothing that could run code on loading."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from motrix_rl.checkpoint.errors import CheckpointError

#: Bytes that are written between two signs of progress.
_PIECE = 1 << 26
#: Bytes after which the disk is waited for, so that no single wait is long.
_SYNC = 1 << 28

_PLAIN = (type(None), bool, int, float, str, bytes, complex)


def write_object(path: Path, obj: object, on_progress: Callable[[], None] = lambda: None) -> None:
    """`torch.save` to a new file, and wait until the disk has it.

    Args:
        path: The file.
        obj: Tensors in dicts, lists, tuples, with plain scalars.
        on_progress: Called now and then while the disk takes it.

    Raises:
        ValueError: Something in `obj` could be saved and not be loaded again (`weights_only`).
        OSError: The disk refused; a partial file stays.
    """
    import torch

    _check_loadable(obj, "state")
    file = _SavedFile(path, on_progress)
    try:
        torch.save(obj, cast(Any, file))
        file.sync()
    except RuntimeError:
        # torch's archive writer answers a failed write() by its own RuntimeError about positions.
        if file.error is not None:
            raise file.error from None
        raise
    finally:
        file.close()


def read_object(file: BinaryIO, name: str) -> Any:
    """Loads what `write_object` wrote, tensors on the CPU.

    Raises:
        CheckpointError: It holds something else than plain data and tensors, or is no such file.
    """
    import torch

    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()
        raise CheckpointError(
            f"{name} cannot be loaded: {reason[0] if reason else type(error).__name__}"
        ) from error


class _SavedFile:
    """What `torch.save` needs of a file, remembering the first error the disk gave."""

    def __init__(self, path: Path, on_progress: Callable[[], None]) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._on_progress = on_progress
        self._unsynced = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        try:
            for start in range(0, len(view), _PIECE):
                self._unsynced += self._file.write(view[start : start + _PIECE])
                if self._unsynced >= _SYNC:
                    self.sync()
                self._on_progress()
        except OSError as error:
            self.error = self.error or error
            raise
        return len(view)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self.error = self.error or error
            raise

    def sync(self) -> None:
        self.flush()
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        try:
            self._file.close()  # flushes again what a full disk did not take
        except OSError as error:
            if self.error is None:
                raise
            del error


def _check_loadable(obj: object, where: str) -> None:
    """A NumPy scalar in a state saves without a word and refuses to load a day later; find it now."""
    import torch

    kind = type(obj)
    if (
        kind in _PLAIN
        or kind in (torch.Size, torch.dtype, torch.device)
        or kind in (torch.Tensor, torch.nn.Parameter)
    ):
        return
    if kind in (dict, OrderedDict):
        for key, value in obj.items():  # type: ignore[attr-defined]
            if type(key) not in _PLAIN:
                raise ValueError(f"{where} has a key of type {type(key).__name__}; use str or int")
            _check_loadable(value, f"{where}[{key!r}]")
        return
    if kind in (list, tuple, set):
        for index, value in enumerate(obj):  # type: ignore[arg-type]
            _check_loadable(value, f"{where}[{index}]")
        return
    raise ValueError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold; "
        "turn it into a tensor or plain Python data"
    )
