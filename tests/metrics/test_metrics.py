from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from motrix_rl.metrics import MetricsWriter, read_metrics


def test_records_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    writer = MetricsWriter(path)
    writer.write(
        {
            "env_steps": np.int64(5),
            "loss": {"critic": np.float32(0.5), "actor": math.nan},
            "list": (1, math.inf),
        }
    )
    first = read_metrics(path)
    assert first[0].pop("time") > 1e9
    assert first == [{"env_steps": 5, "loss": {"critic": 0.5, "actor": None}, "list": [1, None]}]
    writer.write(
        {
            "time": 3.0,
            "path": tmp_path,
            "flag": True,
            "text": "ü\udcff",
            "none": None,
            "zero_d": np.array(2.0),
        }
    )
    writer.close()
    record = json.loads(path.read_bytes().splitlines()[1].decode())
    assert record | {"text": ""} == {
        "time": 3.0, "path": str(tmp_path), "flag": True, "text": "", "none": None, "zero_d": 2.0,
    }  # fmt: skip
    with pytest.raises(TypeError, match="cannot be a object"):
        writer.write({"x": object()})


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_bytes(b'{"time": 1, "a": 1}\n{"time": 2, "a"')
    writer = MetricsWriter(path)
    for a in (3, 4):
        writer.write({"a": a})
    writer.close()
    assert [record["a"] for record in read_metrics(path)] == [1, 3, 4]


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = MetricsWriter(tmp_path / "m.jsonl", tmp_path / "tb")
    for step in range(5):
        writer.write({"env_steps": 100 * step, "losses": {"critic": step / 2, "bad": math.nan}, "name": "x"})
    writer.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["env_steps", "losses/critic"]
    assert [(e.step, e.value) for e in events.Scalars("losses/critic")] == [
        (100 * s, s / 2) for s in range(5)
    ]


def test_a_full_disk_is_reported_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    (tmp_path / "file").touch()
    writer = MetricsWriter(tmp_path / "metrics.jsonl", tmp_path / "file" / "tb", on_error=said.append)
    for _ in range(5):
        writer.write({"a": 1})
    writer.close()
    assert len(said) == 2
    assert "No space left on device" in said[0] and "TensorBoard" in said[1]


def test_what_a_full_disk_has_cost_is_told_when_there_is_room_again(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    writer = MetricsWriter(path, on_error=said.append)
    for a in range(3):
        writer.write({"a": a})
    path.unlink()
    for a in range(3, 6):
        writer.write({"a": a})
    writer.close()
    assert said[1:] == ["metrics are recorded again; 3 records are lost"]
    assert [record["a"] for record in read_metrics(path)] == [3, 4, 5]


def test_files_that_were_deleted_are_begun_anew(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    writer = MetricsWriter(run / "m.jsonl", run / "tb", on_error=said.append)
    for a in range(4):
        writer.write({"a": a})
        if a == 1:
            writer._events._loader.join()
            writer.write({"a": 1.5})  # the import is done: this one makes the event file
            shutil.rmtree(run)
    writer.close()
    assert [record["a"] for record in read_metrics(run / "m.jsonl")] == [2, 3]
    assert [path.stat().st_size > 100 for path in (run / "tb").iterdir()] == [True]
    assert said == []


def test_without_tensorboard_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    said: list[str] = []
    writer = MetricsWriter(tmp_path / "m.jsonl", tmp_path / "tb", on_error=said.append)
    writer.write({"a": 1})
    writer.close()
    assert len(said) == 1 and "no TensorBoard events" in said[0]
    assert [record["a"] for record in read_metrics(tmp_path / "m.jsonl")] == [1]


def test_neither_torch_nor_tensorflow_is_imported(tmp_path: Path) -> None:
    code = f"""
import sys
from motrix_rl.metrics import MetricsWriter
assert "tensorboard" not in sys.modules
writer = MetricsWriter({str(tmp_path / "m")!r}, {str(tmp_path / "tb")!r})
writer.write({{"a": 1.0}})
writer.close()
assert "tensorboard" in sys.modules
assert not {{"torch", "tensorflow"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(os.listdir(tmp_path / "tb")) == 1
