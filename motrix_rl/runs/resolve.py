"""From what a user calls a run (`latest`, a directory, a checkpoint) to the directories it means."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from motrix_rl.errors import UsageError, did_you_mean, nearest
from motrix_rl.runs.directory import RunDirectory, safe_name

_MAX_DEPTH = 4


@dataclass(frozen=True)
class ResolvedRun:
    """What a reference means.

    Attributes:
        run_dir: The run.
        checkpoint: The checkpoint (`checkpoints/step_*` or `best`) that was named; None where the whole run
            was named and the reader chooses (`CheckpointStore.newest_valid`, `BestStore`).
    """

    run_dir: RunDirectory
    checkpoint: Path | None = None


def resolve_run(
    ref: str | os.PathLike[str], root: str | os.PathLike[str] = "runs", *, words: Sequence[str] = ()
) -> ResolvedRun:
    """Finds a run or a checkpoint.

    Args:
        ref: `latest` (the run started last under `root`), `best` (its best policy), a run directory, a
            checkpoint directory (`.../checkpoints/step_000001000`, `.../checkpoints/latest`, `.../best`), or
            the name of a run directory somewhere under `root`.
        root: Where runs are.
        words: What could have been given besides, for the message.

    Raises:
        UsageError: Nothing of that name, with the nearest one.
    """
    text = os.fspath(ref)
    if text in ("latest", "best") and not Path(text).exists():
        run = _latest(root)
        return ResolvedRun(run, _best_of(run) if text == "best" else None)
    path = Path(text).expanduser()
    if path.is_dir():
        return _resolve_directory(path)
    if path.is_file():
        raise UsageError(f"{text} is a file; name the run or checkpoint directory that holds it")
    if path.is_symlink():
        raise UsageError(f"{text} is a link to {os.readlink(path)}, which does not exist")
    named = {run.path.name: run for run in iter_runs(root)}
    if text in named:
        return ResolvedRun(named[text])
    raise UsageError(f"there is no run or checkpoint '{text}'{_hint(path, named, words)}")


def iter_runs(root: str | os.PathLike[str]) -> Iterator[RunDirectory]:
    """All runs under `root`, in no order."""
    yield from _walk(Path(root).expanduser(), _MAX_DEPTH)


def newest_run(root: str | os.PathLike[str], task: str | None = None, backend: str | None = None,
               algo: str | None = None, *, with_checkpoint: bool = False) -> RunDirectory | None:  # fmt: skip
    """The run that was started (or resumed) last.

    Args:
        root: Where runs are.
        task: Only runs of this task; likewise `backend` and `algo`.
        with_checkpoint: Only runs that can be resumed; one that failed at boot is passed over.
    """
    wanted = {"task": task, "backend": backend, "algo": algo}
    best: tuple[float, RunDirectory] | None = None
    for run in iter_runs(root):
        data = _record(run)
        if any(value is not None and data.get(key) != value for key, value in wanted.items()):
            continue
        if with_checkpoint and not any(run.checkpoints.glob("step_*/manifest.json")):
            continue
        started = data.get("started_unix")
        when = float(started) if isinstance(started, (int, float)) else _mtime(run.run_json)
        if best is None or (when, run.path.name) > (best[0], best[1].path.name):
            best = (when, run)
    return best[1] if best else None


def task_directory(root: str | os.PathLike[str], task: str, backend: str, algo: str) -> Path:
    """Where runs of one task, backend and algorithm lie."""
    return Path(root).expanduser() / safe_name(task) / f"{safe_name(backend)}.{safe_name(algo)}"


def _resolve_directory(path: Path) -> ResolvedRun:
    run = RunDirectory(path)
    if run.holds_run():
        return ResolvedRun(run)
    real = path.resolve()
    if real.name == "checkpoints" and (real.parent / "run.json").is_file():
        return ResolvedRun(RunDirectory(real.parent))
    for parent, is_checkpoint in (
        (real.parent.parent, real.parent.name == "checkpoints"),
        (real.parent, real.name == "best"),
    ):
        if is_checkpoint and (parent / "run.json").is_file():
            return ResolvedRun(RunDirectory(parent), real)
    inside = newest_run(path)
    if inside is not None:
        raise UsageError(f"{path} holds runs but is none itself; did you mean '{inside.path}'?")
    raise UsageError(f"{path} is neither a run directory nor a checkpoint (no run.json in it or above it)")


def _latest(root: str | os.PathLike[str]) -> RunDirectory:
    run = newest_run(root)
    if run is None:
        raise UsageError(f"there is no run under '{os.fspath(root)}' yet; train one, or name a run directory")
    return run


def _best_of(run: RunDirectory) -> Path:
    if not run.best.is_dir():
        raise UsageError(f"{run.path} has no best policy yet (it is written after the first evaluation)")
    return run.best


def _hint(path: Path, named: Iterable[str], words: Sequence[str]) -> str:
    # A wrong last component of a path that is there is the commonest slip: look beside it first.
    if path.parent != Path() and path.parent.is_dir():
        beside = [child.name for child in path.parent.iterdir() if child.is_dir()]
        hint = did_you_mean(path.name, beside)
        if hint:
            return hint
    words = ["latest", "best", *words]
    found = nearest(path.name, [*named, *words])
    if found is not None:
        return f"; did you mean '{found}'?"
    return f"; valid: {', '.join(words)}, or the directory of a run or checkpoint"


def _walk(path: Path, depth: int) -> Iterator[RunDirectory]:
    try:
        children = sorted(entry.path for entry in os.scandir(path) if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return
    if (path / "run.json").is_file():
        yield RunDirectory(path)
        return
    if depth > 0:
        for child in children:
            yield from _walk(Path(child), depth - 1)


def _record(run: RunDirectory) -> dict[str, object]:
    # A damaged record of some old run must not keep the others from being found.
    try:
        data = json.loads(run.run_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
