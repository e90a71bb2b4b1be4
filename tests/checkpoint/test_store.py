from __future__ import annotations

import collections
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from motrix_rl.checkpoint import (
    CheckpointError,
    CheckpointSaveError,
    CheckpointStore,
    load_file,
    open_checkpoint,
    tensors,
)
from tests.checkpoint.procs_checkpoint import save, state


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep_last=3)


def names(store: CheckpointStore) -> list[str]:
    return sorted(os.listdir(store.directory))


@pytest.mark.covers("S2")
def test_a_long_save_shows_progress_all_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch writes a tensor in one call, however large it is; the disk is waited for in between, too."""
    monkeypatch.setattr(tensors, "_PIECE", 1 << 16)
    monkeypatch.setattr(tensors, "_SYNC", 1 << 20)
    seen: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append("sync"), sync(fd)))
    store = CheckpointStore(tmp_path / "checkpoints", on_progress=lambda: seen.append("progress"))
    replay = torch.arange(1 << 20)  # 8 MiB
    staging = store.stage(7)
    store.save_file(staging, "replay0.pt", {"rows": replay})
    assert seen.count("progress") >= 128
    assert seen.count("sync") >= 8
    assert "sync sync" not in " ".join(seen[:-1])
    before = len(seen)
    ref = open_checkpoint(store.commit(7, {}))
    assert seen[before:].count("progress") >= 8, "the file is read again for its hash"
    assert torch.equal(load_file(ref, "replay0.pt")["rows"], replay)


def test_what_is_saved_is_loaded(store: CheckpointStore) -> None:
    generator = torch.Generator().manual_seed(3)
    saved = {
        "net": collections.OrderedDict(w=torch.randn(3, 4), b=torch.zeros(4, dtype=torch.float64)),
        "counters": [1, 2.5, None, True, "text", (3, b"bytes")],
        "rng": generator.get_state(),
        "big": 2**100,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    staging = store.stage(7)
    store.save_file(staging, "rank0.pt", saved)
    path = store.commit(7, {"generation": 7, "nested": {"a": [1, None]}})
    ref = open_checkpoint(path)
    assert (ref.step, ref.metadata, list(ref.files)) == (
        7,
        {"generation": 7, "nested": {"a": [1, None]}},
        ["rank0.pt"],
    )
    loaded = load_file(ref, "rank0.pt")
    assert loaded["counters"] == saved["counters"] and loaded["big"] == 2**100
    for key in ("rng", "parameter", "half"):
        assert torch.equal(loaded[key], saved[key])
    assert torch.equal(loaded["net"]["w"], saved["net"]["w"]) and loaded["net"]["b"].dtype == torch.float64
    assert open_checkpoint(store.directory / "latest") == ref
    assert store.newest_valid() == ref


@pytest.mark.covers("C4")
def test_old_ones_are_pruned_by_commit_not_by_step(store: CheckpointStore) -> None:
    store.protected.add(10)
    for number, step in enumerate([10, 20, 30, 40, 25, 26]):  # at 25 the run went on from an older checkpoint
        save(store, step, number)
    assert names(store) == ["latest", "step_000000010", "step_000000025", "step_000000026", "step_000000040"]
    ref = store.newest_valid()
    assert ref is not None and ref.step == 26
    assert os.readlink(store.directory / "latest") == "step_000000026"
    assert [path.name for path in store.list()] == [f"step_{step:09d}" for step in (26, 25, 40, 10)]
    with pytest.raises(ValueError, match="keep_last"):
        CheckpointStore(store.directory, 0)


@pytest.mark.covers("C4")
def test_saving_a_step_again_replaces_it(store: CheckpointStore) -> None:
    for number in range(3):
        save(store, 5, number)
    assert names(store) == ["latest", "step_000000005"]
    ref = store.newest_valid()
    assert ref is not None and ref.metadata == {"number": 2}


def test_discarded_and_failed_saves_leave_nothing(store: CheckpointStore) -> None:
    store.save_file(store.stage(1), "rank0.pt", state(1))
    store.discard(1)
    store.discard(1)
    assert names(store) == []
    store.save_file(store.stage(2), "rank0.pt", state(2))
    with pytest.raises(CheckpointSaveError, match=r"rank1\.pt is missing"):
        store.commit(2, {}, ["rank0.pt", "rank1.pt"])
    assert names(store) == []
    store.stage(3)
    with pytest.raises(ValueError, match="plain data"):
        store.commit(3, {"x": object()})
    assert names(store) == [] and store.newest_valid() is None
    assert CheckpointStore(store.directory / "none").newest_valid() is None


@pytest.mark.parametrize("name", ["../x.pt", "manifest.json", ".hidden", "a/b", ""])
def test_file_names_stay_inside(store: CheckpointStore, name: str) -> None:
    with pytest.raises(ValueError, match="name of a checkpoint file"):
        store.save_file(store.stage(1), name, {})


@pytest.mark.covers("C5")
@pytest.mark.parametrize(
    ("value", "where"),
    [({"a": {"b": [1, np.float64(2)]}}, r"state\['a'\]\['b'\]\[1\] is a numpy.float64"),
     ({"x": np.zeros(2)}, "numpy.ndarray"),
     ({(1, 2): 3}, "key of type tuple"), ([print], "builtins")],
)  # fmt: skip
def test_what_could_not_be_loaded_is_refused_when_saved(
    store: CheckpointStore, value: object, where: str
) -> None:
    staging = store.stage(1)
    with pytest.raises(ValueError, match=where):
        store.save_file(staging, "rank0.pt", value)
    assert os.listdir(staging) == []


def cut(path: Path) -> None:
    os.truncate(path / "rank0.pt", 100)


def flip(path: Path) -> None:
    data = bytearray((path / "rank0.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "rank0.pt").write_bytes(data)


def lose(path: Path) -> None:
    (path / "rank1.pt").unlink()


def edit(path: Path) -> None:
    body = json.loads((path / "manifest.json").read_text())
    body["metadata"]["number"] = 99
    (path / "manifest.json").write_text(json.dumps(body))


def garble(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"\x00" * 50)


def empty(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"")


def foreign(path: Path) -> None:
    (path / "manifest.json").write_text('{"kind": "something else"}')


def future(path: Path) -> None:
    (path / "manifest.json").write_text('{"kind": "motrix_rl.checkpoint", "format": 2}')


def no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def swapped_in(path: Path) -> None:
    shutil.copy(path.parent / "step_000000001" / "rank0.pt", path / "rank0.pt")


DAMAGES = {cut: "cut short", flip: "damaged or was changed", lose: "cannot be opened",
           edit: "was changed after it was written",
           garble: "cannot be read", empty: "cannot be read", foreign: "not a manifest of this project",
           future: "has format 2",
           no_manifest: "is missing", swapped_in: "damaged or was changed"}  # fmt: skip


@pytest.mark.covers("C5")
@pytest.mark.parametrize(
    ("damage", "reason"), DAMAGES.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_damaged_one_is_refused_and_passed_over(
    store: CheckpointStore, damage: Callable[[Path], None], reason: str
) -> None:
    for number in (1, 2):
        save(store, number, number)
    newest = store.directory / "step_000000002"
    damage(newest)
    with pytest.raises(CheckpointError, match=reason):
        open_checkpoint(newest)
    skipped: list[str] = []
    ref = store.newest_valid(skipped.append)
    assert ref is not None and ref.step == 1
    assert len(skipped) == 1 and "step_000000002" in skipped[0] and "\n" not in skipped[0]
    save(store, 3, 3)
    assert store.newest_valid(lambda _: None).step == 3  # type: ignore[union-attr]
    assert newest.exists()


@pytest.mark.covers("C5")
def test_damage_after_opening_is_found_when_loading(store: CheckpointStore) -> None:
    save(store, 1, 1)
    ref = store.newest_valid()
    assert ref is not None
    flip(ref.path)
    with pytest.raises(CheckpointError, match="damaged or was changed"):
        load_file(ref, "rank0.pt")
    with pytest.raises(CheckpointError, match=r"holds no rank7\.pt; it holds rank0\.pt, rank1\.pt"):
        load_file(ref, "rank7.pt")
    with pytest.raises(CheckpointError, match="no checkpoint directory"):
        open_checkpoint(store.directory / "step_000000404")


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.getpid, ())


@pytest.mark.covers("C5")
def test_code_is_never_run(store: CheckpointStore) -> None:
    staging = store.stage(1)
    torch.save({"x": _Evil()}, staging / "rank0.pt")
    ref = open_checkpoint(store.commit(1, {}))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_file(ref, "rank0.pt")
    (staging := store.stage(2)).joinpath("rank0.pt").write_bytes(b"no archive")
    ref = open_checkpoint(store.commit(2, {}))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_file(ref, "rank0.pt")


def _other_rank(staging: str, rank: int) -> None:
    CheckpointStore(Path(staging).parent).save_file(Path(staging), f"rank{rank}.pt", state(rank))


def test_other_ranks_save_by_path(store: CheckpointStore) -> None:
    staging = store.stage(4)
    store.save_file(staging, "rank0.pt", state(0))
    worker = multiprocessing.get_context("spawn").Process(target=_other_rank, args=(str(staging), 1))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    ref = open_checkpoint(store.commit(4, {}, ["rank0.pt", "rank1.pt"]))
    assert load_file(ref, "rank1.pt")["number"] == 1


@pytest.mark.covers("C2")
def test_only_dead_writers_are_swept(store: CheckpointStore) -> None:
    store.directory.mkdir(parents=True)
    host, pid = socket.gethostname(), os.getpid()
    dead = store.directory / f".stage-000000001-{host}-{pid}-1"  # our pid, but another process
    foreign = store.directory / ".stage-000000001-some-other-host-12-1"
    trash = store.directory / ".trash-step_000000001-9"
    for path in (dead, foreign, trash):
        path.mkdir()
        (path / "rank0.pt").touch()
    mine = store.stage(1)
    store.stage(2)
    assert mine.exists() and foreign.exists() and not dead.exists() and not trash.exists()
    os.utime(foreign, (0, 0))
    store.stage(3)
    assert not foreign.exists()


def test_torch_is_imported_only_for_tensors() -> None:
    code = "import sys, motrix_rl.checkpoint, motrix_rl.runs, motrix_rl.console\n"
    code += "import motrix_rl.logs, motrix_rl.metrics\n"
    code += "assert not {'torch', 'numpy', 'mujoco', 'gymnasium', 'tensorboard'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
