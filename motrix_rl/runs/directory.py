"""The directory a run leaves: `runs/<task>/<backend>.<algo>/<time>-<id>/`."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from datetime import datetime
from pathlib import Path

from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.runs.lock import RunLock
from motrix_rl.runs.record import RunRecord

# Any of these makes a directory somebody's run; a log file of a job scheduler does not.
_TRACES = ("run.json", "config.yaml", "metrics.jsonl", "checkpoints", "best")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def safe_name(name: str) -> str:
    """A task or backend name as one path component: `gymnasium:Pendulum-v1` -> `gymnasium_Pendulum-v1`."""
    return _UNSAFE.sub("_", name).lstrip(".") or "_"


class RunDirectory:
    """Names of everything in one run directory; any number of readers may have one.

    It holds no open file, but for the lock of the one process that runs in it (`claim`).

    Attributes:
        path: The directory, absolute.
        logs: One `<worker>.log` a worker.
        async_errors: One `<worker>_error.log` for each worker that failed, with the whole traceback.
        checkpoints: `step_*/` and the link `latest`.
        best: Best policy so far, written by the evaluator.
        metrics_path: `metrics.jsonl`.
        tensorboard: Directory of TensorBoard event files.
        config_path: `config.yaml`, the resolved configuration.
        run_json: `run.json`; `record` reads and writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.logs = self.path / "logs"
        self.async_errors = self.path / "async_errors"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.metrics_path = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.config_path = self.path / "config.yaml"
        self.run_json = self.path / "run.json"
        self.record = RunRecord(self.run_json)
        self._is_ours = False
        self._lock: RunLock | None = None

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunDirectory) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    @classmethod
    def create(cls, root: str | os.PathLike[str], task: str, backend: str, algo: str,
               run_dir: str | os.PathLike[str] | None = None) -> RunDirectory:  # fmt: skip
        """Makes a new run directory with its folders, claimed for this process.

        Args:
            root: Where runs go when `run_dir` is None, usually `runs`.
            task: Task name as the user wrote it.
            backend: Backend name.
            algo: Algorithm name.
            run_dir: The user's own choice of directory; missing parents are made.

        Raises:
            UsageError: `run_dir` holds a run already, perhaps one that goes on, or the directory cannot be made
                or written.
            MotrixError: The disk refuses the first file. In neither case is anything left behind.
        """
        if run_dir is not None:
            run = cls(Path(run_dir).expanduser())
            run._is_ours = not os.path.exists(run.path)
            _make(run.path, exist_ok=True)
            run.claim()  # before the look: of two that start at once, one sees what the other has made
            run._refuse_if_taken()
        else:
            parent = Path(root).expanduser() / safe_name(task) / f"{safe_name(backend)}.{safe_name(algo)}"
            run = cls(_make_new(parent))
            run._is_ours = True
            run.claim()
        try:
            run.ensure_folders()
            run.record.update(
                {"format": 1, "run_id": run.path.name, "task": task, "backend": backend, "algo": algo}
            )
        except MotrixError:
            run.take_back()
            raise
        return run

    def take_back(self) -> None:
        """Removes what `create` has made, when nothing has run in it; what others have put there stays."""
        for file in (self.config_path, self.run_json):
            with contextlib.suppress(OSError):
                file.unlink()
        self.release(remove=True)
        folders = [self.logs, self.async_errors, self.checkpoints]
        for folder in [*folders, self.path] if self._is_ours else folders:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def claim(self) -> None:
        """Keeps other processes from running in this directory, until `release` or the end of this process.

        Where it is held already, it is made sure that the lock is still in place.

        Raises:
            UsageError: Another process runs in it.
        """
        if self._lock is None or not self._lock.is_in_place:
            lock, self._lock = RunLock(self.path / ".lock"), self._lock
            self.release()
            self._lock = lock

    def release(self, *, remove: bool = False) -> None:
        """Ends `claim`; `remove` takes its trace away, too. May be called more than once."""
        if self._lock is not None:
            self._lock.release(remove=remove)
            self._lock = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """A run directory that is there.

        Raises:
            UsageError: It is missing or holds no run.
        """
        run = cls(Path(path).expanduser())
        if not run.path.is_dir():
            raise UsageError(f"there is no run directory {run.path}")
        if not run.holds_run():
            raise UsageError(f"{run.path} holds no run (no run.json in it)")
        return run

    def holds_run(self) -> bool:
        """Whether a run has left its record here."""
        return self.run_json.is_file()

    def ensure_folders(self) -> None:
        """Makes the folders of a run again, for a resume in a directory that lost empty ones in a copy.

        Raises:
            UsageError: They cannot be made.
        """
        for folder in (self.logs, self.async_errors, self.checkpoints):
            _make(folder, exist_ok=True)

    def log_path(self, worker: str) -> Path:
        """Log file of a worker."""
        return self.logs / f"{worker}.log"

    def error_path(self, worker: str) -> Path:
        """File for the whole traceback of a worker that failed."""
        return self.async_errors / f"{worker}_error.log"

    def write_error(self, worker: str, text: str) -> Path:
        """Appends one failure's whole text to the worker's error file and returns its path.

        Raises:
            OSError: The disk refused.
        """
        self.async_errors.mkdir(parents=True, exist_ok=True)
        path = self.error_path(worker)
        stamp = datetime.now().isoformat(timespec="milliseconds")
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"==== {stamp} {worker} ====\n{text.rstrip()}\n")
        return path

    def _refuse_if_taken(self) -> None:
        found = [name for name in _TRACES if os.path.lexists(self.path / name)]
        if found:
            self.release(remove=True)
            raise UsageError(
                f"run_dir={self.path} already holds a run ({found[0]}); "
                f"go on with it by resume={self.path}, or name another run_dir"
            )


def _make_new(parent: Path) -> Path:
    for _ in range(100):
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        path = parent / name
        if not os.path.lexists(path):
            try:
                _make(path, exist_ok=False)
            except FileExistsError:
                continue  # another run started in the same second and drew the same id
            return path
    raise UsageError(f"no free run directory name found in {parent}")


def _make(path: Path, *, exist_ok: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok:
            raise
        raise UsageError(f"{path} cannot be a run directory: a file of that name is in the way") from None
    except OSError as error:
        raise UsageError(
            f"the run directory {path} cannot be made: {error.strerror}; "
            "choose another place with run_dir=..."
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"the run directory {path} cannot be written; choose another place with run_dir=...")
