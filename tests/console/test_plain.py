from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from motrix_rl.console.plain import PlainConsole
from tests.console.samples import BOOT, RUN


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


def console(log: Path, interval_s: float) -> PlainConsole:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        return PlainConsole(fd, interval_s=interval_s)
    finally:
        os.close(fd)


@pytest.mark.covers("U2")
def test_boot_prints_changes_only(log: Path) -> None:
    plain = console(log, 10.0)
    for _ in range(5):
        plain.boot(BOOT)
    changed = dataclasses.replace(BOOT.workers[0], phase="ready", last_line="built \x1b[1mnetworks")
    plain.boot(dataclasses.replace(BOOT, workers=[changed, *BOOT.workers[1:]]))
    plain.close()
    lines = log.read_text().splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[0].startswith("starting cartpole-swingup/mujoco.fastsac in runs/")
    assert lines[-1].startswith("[3s] learner-0 ready: built ")


@pytest.mark.covers("U2")
def test_one_line_an_interval(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("motrix_rl.console.plain.time.monotonic", lambda: now[0])
    plain = console(log, 10.0)
    for second in range(31):
        now[0] = float(second)
        plain.status(dataclasses.replace(RUN, elapsed_s=second))
    plain.note("saved checkpoint x")
    plain.close(dataclasses.replace(RUN, elapsed_s=30))
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["0s", "10s", "20s", "30s", "saved"]
    plain.close()


@pytest.mark.covers("U2")
def test_a_reader_that_left_ends_nothing() -> None:
    read_end, write_end = os.pipe()
    plain = PlainConsole(write_end, interval_s=0.0)
    os.close(read_end)
    for _ in range(3):
        plain.status(RUN)
    plain.close(RUN)
    os.close(write_end)
