"""The best policy so far: `best/` with `policy.pt` and `best.json`, replaced as a whole by the evaluator."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motrix_rl.checkpoint import tensors
from motrix_rl.checkpoint.errors import CheckpointError
from motrix_rl.checkpoint.manifest import Manifest, describe
from motrix_rl.checkpoint.store import BEST_RECORD, CheckpointRef, load_file, save_error
from motrix_rl.runs import atomic

POLICY = "policy.pt"


class BestStore:
    """The `best/` directory of a run. One writer (the evaluator), any number of readers at any time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()
        self._staging = self.directory.with_name(f".{self.directory.name}-staging")
        self._displaced = self.directory.with_name(f".{self.directory.name}-old")

    def save(self, step: int, policy: object, metadata: Mapping[str, Any]) -> Path:
        """Replaces the best policy.

        Args:
            step: Policy version or generation, the caller's choice; kept as `CheckpointRef.step`.
            policy: Tensors and plain data, for `policy.pt`.
            metadata: Plain data (return, episodes, version, ...), for `best.json`.

        Raises:
            CheckpointSaveError: The disk refused; the old best is untouched.
        """
        try:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(parents=True)
            tensors.write_object(self._staging / POLICY, policy)
            Manifest(step, 0, {POLICY: describe(self._staging / POLICY)}, metadata).write(
                self._staging / BEST_RECORD
            )
            atomic.fsync_dir(self._staging)
            if self.directory.exists():
                shutil.rmtree(self._displaced, ignore_errors=True)
                os.rename(self.directory, self._displaced)
            os.rename(self._staging, self.directory)
            atomic.fsync_dir(self.directory.parent)
        except OSError as error:
            raise save_error(f"best policy in {self.directory}", error) from error
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        shutil.rmtree(self._displaced, ignore_errors=True)
        return self.directory

    def open(self) -> CheckpointRef | None:
        """The best policy, checked; None where there is none yet.

        Raises:
            CheckpointError: It is there and damaged.
        """
        for attempts_left in (4, 3, 2, 1, 0):
            try:
                ref = self._read()
            except CheckpointError:
                # A writer may have replaced it under our hands; what is damaged stays so.
                if attempts_left == 0:
                    raise
            else:
                # Nothing at all is believed when it was seen twice, for the same reason.
                if ref is not None or attempts_left < 4:
                    return ref
            time.sleep(0.01)
        raise AssertionError("unreachable")

    def load(self, ref: CheckpointRef) -> Any:
        """What was saved as the policy.

        Raises:
            CheckpointError: The file has changed since `open`.
        """
        return load_file(ref, POLICY)

    def _read(self) -> CheckpointRef | None:
        for directory in (self.directory, self._displaced):
            if directory.is_dir():
                manifest = Manifest.read(directory / BEST_RECORD)
                manifest.check_files(directory)
                return CheckpointRef(directory, manifest.step, manifest.metadata, manifest.files)
        return None
