"""Checkpoints in a directory: written aside, committed by one rename, pruned, found again after any crash.

Layout: `step_000001000/{rank0.pt, ..., manifest.json}`, the link `latest`, and, while something is going on,
`.stage-*` (being written), `step_*.old` (displaced by a second save of the same step) and `.trash-*` (being
deleted). Only one process commits (rank 0); other ranks write files into the staging directory by its path.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motrix_rl.checkpoint import tensors
from motrix_rl.checkpoint.errors import CheckpointError, CheckpointSaveError
from motrix_rl.checkpoint.manifest import FileEntry, Manifest, describe, open_checked
from motrix_rl.runs import atomic, processes

MANIFEST = "manifest.json"
BEST_RECORD = "best.json"
LATEST = "latest"
_STEP = re.compile(r"step_(\d{9,})(\.old)?")
_STAGE = re.compile(r"\.stage-(\d+)-(.+)-(\d+)-(\d+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Whether a writer on another host still lives cannot be asked; no save takes this long.
_FOREIGN_STAGE_AGE_S = 6 * 3600.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint that was found whole.

    Attributes:
        path: Its directory.
        step: Generation it was taken at.
        metadata: What the writer said about it.
        files: Its files.
        sequence: Its place in the order of commits.
    """

    path: Path
    step: int
    metadata: Mapping[str, Any]
    files: Mapping[str, FileEntry]
    sequence: int = 0


class CheckpointStore:
    """The `checkpoints/` directory of one run.

    Args:
        directory: Made if missing when something is staged.
        keep_last: How many commits are kept.
        protected: Steps that are never pruned; may be changed at any time.
        on_progress: Called now and then during a save, however long it takes.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep_last: int = 3,
        protected: Iterable[int] = (),
        *,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, not {keep_last}")
        self.directory = Path(directory).absolute()
        self.keep_last = keep_last
        self.protected: set[int] = set(protected)
        self._on_progress = on_progress
        self._staged: dict[int, Path] = {}

    # ---- writing

    def stage(self, step: int) -> Path:
        """Opens a staging directory for a checkpoint at `step` and sweeps what dead writers left.

        Raises:
            CheckpointSaveError: The disk refused.
        """
        assert 0 <= step < 10**15, step
        host, pid, ticks = processes.own_identity()
        path = self.directory / f".stage-{step:09d}-{host}-{pid}-{ticks}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
            if path.exists():
                shutil.rmtree(path)
            path.mkdir()
        except OSError as error:
            raise save_error(f"checkpoint {step} in {self.directory}", error) from error
        self._staged[step] = path
        return path

    def save_file(self, staging: Path, name: str, obj: object) -> None:
        """Writes one file of a checkpoint that is being staged, durably. Any rank, any process, by path.

        Args:
            staging: What `stage` returned, here or in the process that commits.
            name: File name, such as `rank0.pt`.
            obj: Tensors and plain data; see `tensors.write_object`.

        Raises:
            CheckpointSaveError: The disk refused; the file is removed, and the whole staging directory if
                this store opened it.
            ValueError: `obj` holds what could not be loaded again.
        """
        _check_name(name)
        path = staging / name
        try:
            tensors.write_object(path, obj, self._on_progress)
        except OSError as error:
            _remove_file(path)
            if staging in self._staged.values():
                self._drop_staging(staging)
            raise save_error(f"{name} in {staging.parent}", error) from error
        except BaseException:
            _remove_file(path)
            raise

    def commit(self, step: int, metadata: Mapping[str, Any], expect: Iterable[str] = ()) -> Path:
        """Makes the staged checkpoint the newest one, durably, and prunes.

        Args:
            step: What was staged.
            metadata: Plain data (JSON, no NaN).
            expect: Names that must be there (one file a rank).

        Returns:
            Directory of the checkpoint.

        Raises:
            CheckpointSaveError: The disk refused, or an expected file is missing; what was staged is
                removed.
            ValueError: The metadata is not plain data.
        """
        assert step in self._staged, f"step {step} was not staged"
        staging = self._staged[step]
        try:
            names = sorted(entry.name for entry in os.scandir(staging))
            missing = sorted(set(expect) - set(names))
            if missing:
                raise CheckpointSaveError(
                    f"checkpoint {step} in {self.directory}: {', '.join(missing)} is missing"
                )
            files = {name: describe(staging / name, self._on_progress) for name in names}
            Manifest(step, self._next_sequence(), files, metadata).write(staging / MANIFEST)
            atomic.fsync_dir(staging)
            target = self._publish(staging, step)
        except OSError as error:
            self._drop_staging(staging)
            raise save_error(f"checkpoint {step} in {self.directory}", error) from error
        except BaseException:
            self._drop_staging(staging)
            raise
        self._staged.pop(step, None)
        self._prune(target)
        return target

    def discard(self, step: int) -> None:
        """Gives up what was staged for `step`; harmless if nothing was."""
        staging = self._staged.get(step)
        if staging is not None:
            self._drop_staging(staging)

    # ---- reading

    def newest_valid(self, on_skip: Callable[[str], None] = logger.warning) -> CheckpointRef | None:
        """The checkpoint committed last that is whole.

        Args:
            on_skip: Called with one line for each checkpoint that had to be passed over.
        """
        for path, manifest in self._by_age():
            try:
                return _validated(path, manifest or Manifest.read(path / MANIFEST))
            except CheckpointError as error:
                on_skip(f"skipped checkpoint {path.name}: {error}")
        return None

    def list(self) -> list[Path]:
        """Checkpoints with a readable manifest, newest commit first. Their files are not read."""
        return [path for path, manifest in self._by_age() if manifest is not None]

    def load_file(self, ref: CheckpointRef, name: str) -> Any:
        """`load_file` of this module."""
        return load_file(ref, name)

    # ---- inside

    def _publish(self, staging: Path, step: int) -> Path:
        target = self.directory / f"step_{step:09d}"
        displaced = target.with_name(target.name + ".old")
        if target.exists():
            # Two renames cannot be one step everywhere; in between, readers find the displaced one.
            _remove_tree(displaced)
            os.rename(target, displaced)
        os.rename(staging, target)
        atomic.replace_symlink(self.directory / LATEST, target.name)
        atomic.fsync_dir(self.directory)
        _remove_tree(displaced)
        return target

    def _by_age(self) -> list[tuple[Path, Manifest | None]]:
        found: list[tuple[tuple[int, int, int], Path, Manifest | None]] = []
        for path, step, is_old in self._step_directories():
            try:
                manifest = Manifest.read(path / MANIFEST)
                key = (manifest.sequence, step, not is_old)
            except CheckpointError:
                # Nothing tells its age; asked first, so that the reader hears of it.
                manifest, key = None, (1 << 62, step, not is_old)
            found.append((key, path, manifest))
        return [
            (path, manifest) for _, path, manifest in sorted(found, key=lambda item: item[0], reverse=True)
        ]

    def _step_directories(self) -> list[tuple[Path, int, bool]]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        matches = ((name, _STEP.fullmatch(name)) for name in names)
        return [(self.directory / name, int(m[1]), m[2] is not None) for name, m in matches if m]

    def _next_sequence(self) -> int:
        return 1 + max((m.sequence for _, m in self._by_age() if m is not None), default=0)

    def _prune(self, newest: Path) -> None:
        kept = 0
        for path, manifest in self._by_age():
            if manifest is None:
                continue  # damaged: not ours to delete, a person may want to look
            kept += 1
            if kept > self.keep_last and path != newest and manifest.step not in self.protected:
                _remove_tree(path)

    def _drop_staging(self, staging: Path) -> None:
        self._staged = {step: path for step, path in self._staged.items() if path != staging}
        _remove_tree(staging)

    def _sweep(self) -> None:
        for entry in os.scandir(self.directory):
            match = _STAGE.fullmatch(entry.name)
            if entry.name.startswith(".trash-"):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif match:
                alive = processes.is_alive(match[2], int(match[3]), int(match[4]))
                if alive is None:
                    alive = time.time() - entry.stat().st_mtime < _FOREIGN_STAGE_AGE_S
                if not alive:
                    shutil.rmtree(entry.path, ignore_errors=True)


def open_checkpoint(path: str | os.PathLike[str]) -> CheckpointRef:
    """Opens one checkpoint (`step_*`, the link `latest`, or `best`) and checks every file of it.

    Raises:
        CheckpointError: It is damaged, foreign or of an unknown format.
    """
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise CheckpointError(f"there is no checkpoint directory {directory}")
    directory = directory.resolve()
    name = BEST_RECORD if (directory / BEST_RECORD).is_file() else MANIFEST
    return _validated(directory, Manifest.read(directory / name))


def load_file(ref: CheckpointRef, name: str) -> Any:
    """Loads one file of a checkpoint, tensors on the CPU, by `weights_only`, after checking its hash again.

    Raises:
        CheckpointError: No such file in the checkpoint, or it has changed, or holds more than plain data.
    """
    if name not in ref.files:
        raise CheckpointError(
            f"{ref.path} holds no {name}; it holds {', '.join(sorted(ref.files)) or 'nothing'}"
        )
    with open_checked(ref.path / name, ref.files[name]) as file:
        return tensors.read_object(file, str(ref.path / name))


def _validated(path: Path, manifest: Manifest) -> CheckpointRef:
    manifest.check_files(path)
    return CheckpointRef(path, manifest.step, manifest.metadata, manifest.files, manifest.sequence)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name == MANIFEST:
        raise ValueError(f"{name!r} cannot be the name of a checkpoint file")


def save_error(what: str, error: OSError) -> CheckpointSaveError:
    """One line for a person out of what the disk answered."""
    reason = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}.get(
        error.errno or 0, error.strerror or str(error)
    )
    return CheckpointSaveError(f"{what}: {reason}")


def _remove_file(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot remove %s: %s", path, error.strerror)


def _remove_tree(path: Path) -> None:
    """Deletes a directory; a kill on the way leaves `.trash-*`, never what looks like a checkpoint."""
    trash = path.with_name(f".trash-{path.name.lstrip('.')}-{os.getpid()}")
    try:
        os.rename(path, trash)
        shutil.rmtree(trash)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("cannot remove %s: %s", path, error.strerror or error)
