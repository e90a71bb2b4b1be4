from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch

from motrix_rl.checkpoint import BestStore, CheckpointError, load_file, open_checkpoint


def test_best_is_replaced_as_a_whole(tmp_path: Path) -> None:
    best = BestStore(tmp_path / "run" / "best")
    assert best.open() is None
    for version in (3, 4):
        best.save(version, {"vector": torch.full((5,), float(version))}, {"return_mean": 10.0 * version})
        ref = best.open()
        assert ref is not None and (ref.step, ref.metadata) == (version, {"return_mean": 10.0 * version})
        assert best.load(ref)["vector"].tolist() == [version] * 5
    assert sorted(os.listdir(best.directory)) == ["best.json", "policy.pt"]
    assert os.listdir(tmp_path / "run") == ["best"]
    assert load_file(open_checkpoint(best.directory), "policy.pt")["vector"][0] == 4


@pytest.mark.covers("C2")
def test_killed_between_the_renames(tmp_path: Path) -> None:
    best = BestStore(tmp_path / "best")
    best.save(1, {"v": torch.zeros(1)}, {})
    os.rename(best.directory, tmp_path / ".best-old")
    ref = best.open()
    assert ref is not None and ref.step == 1
    assert best.load(ref) == {"v": torch.zeros(1)}
    best.save(2, {"v": torch.zeros(1)}, {})
    assert os.listdir(tmp_path) == ["best"]


@pytest.mark.covers("C5")
def test_a_damaged_best_is_refused(tmp_path: Path) -> None:
    best = BestStore(tmp_path / "best")
    best.save(1, {"v": torch.zeros(1)}, {})
    os.truncate(best.directory / "policy.pt", 10)
    with pytest.raises(CheckpointError, match="cut short"):
        best.open()


def test_a_reader_always_finds_one_while_it_is_replaced(tmp_path: Path) -> None:
    best = BestStore(tmp_path / "best")
    best.save(0, {"v": torch.zeros(1)}, {})
    stop = threading.Event()

    def replace() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            best.save(version, {"v": torch.zeros(1)}, {})

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        last = 0
        for _ in range(200):
            ref = BestStore(tmp_path / "best").open()
            assert ref is not None and ref.step >= last
            last = ref.step
    finally:
        stop.set()
        writer.join()
