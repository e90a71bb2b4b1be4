from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from motrix_rl.logs import STACK_SIGNAL, OutputPump, tail
from motrix_rl.logs.lines import format_lines, parse
from tests.logs import procs_logs as procs

pytestmark = pytest.mark.timeout(60)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def pump() -> Iterator[OutputPump]:
    multiprocessing.resource_tracker.ensure_running()
    before = open_pipes()
    made = OutputPump()
    yield made
    made.close()
    assert open_pipes() == before


def open_pipes() -> set[str]:
    targets = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {target for target in targets if target.startswith("pipe:")}


def start(pump: OutputPump, target: Callable[..., None], name: str, path: Path, *more: Any) -> BaseProcess:
    process = SPAWN.Process(target=target, args=(name, str(path), *more), name=name)
    with pump.add(name, path).redirected():
        process.start()
    return process


def drain_until(pump: OutputPump, done: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline
        select.select(pump.filenos(), [], [], 0.02)
        pump.drain()


def log(path: Path) -> list[tuple[str, str]]:
    parsed = [parse(line) for line in path.read_text().splitlines()]
    assert all(parsed), path.read_text()
    return [(line.level, line.message) for line in parsed if line]


@pytest.mark.covers("U3")
def test_all_that_is_said_is_in_the_workers_own_log(
    pump: OutputPump, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {name: tmp_path / "logs" / f"{name}.log" for name in ("collector-0", "learner-0")}
    workers = [start(pump, procs.talk, name, path) for name, path in paths.items()]
    drain_until(pump, lambda: not any(worker.is_alive() for worker in workers))
    pump.drain()
    for (name, path), worker in zip(paths.items(), workers, strict=True):
        lines = log(path)
        assert worker.exitcode == 0, lines
        assert all(f" {name} | " in line for line in path.read_text().splitlines())
        for expected in [
            ("INFO", "from logging"), ("INFO", "in two lines"), ("INFO", "from print"),
            ("WARN", "from stderr"),
            ("INFO", "bad \\xff\\xfe bytes"), ("WARN", "red"), ("INFO", "100%"), ("INFO", "from native code"),
            ("INFO", "from a child"), ("WARN", "its error"), ("FATAL", "uncaught exception in thread helper"),
            ("FATAL", "ValueError: in a thread"), ("INFO", "no end of line"),
        ]:  # fmt: skip
            assert expected in lines, expected
        assert any(level == "WARN" and "UserWarning: from warnings" in message for level, message in lines)
        assert "not shown" not in path.read_text()
        assert pump.last_line(name) == lines[-1][1]
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err == ""
    print("mine again")
    assert capfd.readouterr().out == "mine again\n"


@pytest.mark.covers("U3", "S2")
def test_crash_and_stacks_on_demand(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "collector-0.log"
    worker = start(pump, procs.crash, "collector-0", path)
    drain_until(pump, lambda: not worker.is_alive())
    pump.remove("collector-0")
    assert worker.exitcode == -signal.SIGSEGV
    text = path.read_text()
    assert (
        "before the crash" in text and "Fatal Python error: Segmentation fault" in text and "in crash" in text
    )
    assert STACK_SIGNAL == signal.SIGUSR1


@pytest.mark.covers("U3")
def test_two_writers_of_one_log_tear_no_line(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    worker = start(pump, procs.count_lines, "w", path, 2000)
    drain_until(pump, lambda: not worker.is_alive())
    pump.drain()
    said = [message for _, message in log(path)]
    for kind in ("own", "piped"):
        assert [line for line in said if line.startswith(kind)] == [f"{kind} {i}" for i in range(2000)]


@pytest.mark.covers("S6")
@pytest.mark.timeout(20)
def test_a_flood_holds_nobody(pump: OutputPump, tmp_path: Path) -> None:
    with pump.add("w", tmp_path / "w.log").redirected():
        flood = subprocess.Popen(["yes"])  # prints faster than anybody reads
    try:
        drain_until(pump, lambda: (tmp_path / "w.log").stat().st_size > 1_000_000)
    finally:
        flood.kill()
        flood.wait()


@pytest.mark.covers("S6")
def test_pipes_end_with_their_worker(tmp_path: Path) -> None:
    """Also where the worker is the first one, whose start brings multiprocessing's tracker with it."""
    done = subprocess.run([sys.executable, "-m", "tests.logs.procs_logs", tmp_path / "w.log"], check=False)
    assert done.returncode == 0


@pytest.mark.covers("S6")
def test_a_full_pipe_stops_no_shutdown(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    worker = start(pump, procs.flood, "w", path)
    drain_until(pump, lambda: path.stat().st_size > 0)
    time.sleep(0.2)  # nobody drains: the pipe is full and the worker blocked in its write
    worker.kill()
    worker.join(5)
    assert worker.exitcode == -signal.SIGKILL
    began = time.monotonic()
    pump.close()
    assert time.monotonic() - began < 2.0
    assert parse(tail(path, 1)[0]) is not None


@pytest.mark.covers("S6")
def test_a_grandchild_that_keeps_the_pipe_stops_no_shutdown(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    worker = start(pump, procs.sleep_with_child, "w", path)
    drain_until(pump, lambda: pump.last_line("w").startswith("child"))
    grandchild = int(pump.last_line("w").split()[1])
    try:
        worker.kill()
        worker.join(5)
        began = time.monotonic()
        pump.drain()
        assert pump.filenos(), "the grandchild holds the pipes, or this test tests nothing"
        pump.remove("w")
        assert time.monotonic() - began < 1.0
    finally:
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.covers("S6")
def test_a_reader_that_left_ends_no_worker(pump: OutputPump, tmp_path: Path) -> None:
    worker = start(pump, procs.write_after_the_reader, "w", tmp_path / "w.log")
    drain_until(pump, lambda: "ready" in (tmp_path / "w.log").read_text())
    pump.close()
    worker.join(20)
    assert worker.exitcode == 7


@pytest.mark.covers("S6", "U3")
def test_killed_in_mid_line_and_started_again(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    for _ in range(2):
        worker = start(pump, procs.flood, "w", path)
        size = path.stat().st_size
        drain_until(pump, lambda size=size: path.stat().st_size > size)
        worker.kill()
        worker.join(5)
    pump.close()
    assert all(set(message) == {"x"} for _, message in log(path))


def test_a_full_disk_ends_nothing(pump: OutputPump, tmp_path: Path) -> None:
    (tmp_path / "w.log").symlink_to("/dev/full")
    output = pump.add("w", tmp_path / "w.log")
    os.write(output._write_ends[0], b"lost\nlost too\n")
    pump.drain()
    assert pump.lost_lines == 2


def test_a_log_that_was_deleted_or_moved_is_begun_anew(pump: OutputPump, tmp_path: Path) -> None:
    run, path = tmp_path / "run", tmp_path / "run" / "logs" / "w.log"
    output = pump.add("w", path)
    for text, change in (
        ("one", shutil.rmtree),
        ("two", lambda run: run.rename(tmp_path / "moved")),
        ("three", None),
    ):
        os.write(output._write_ends[0], f"{text}\n".encode())
        pump.drain()
        assert log(path) == [("INFO", text)]
        if change is not None:
            change(run)
    assert log(tmp_path / "moved" / "logs" / "w.log") == [("INFO", "two")]
    assert pump.lost_lines == 0


def test_only_a_first_incarnation_must_have_its_log(tmp_path: Path) -> None:
    pump, path = OutputPump(), tmp_path / "logs" / "w.log"
    pump.add("w", path)
    shutil.rmtree(path.parent)
    path.parent.touch()  # nothing can be opened below it, by root neither
    with pytest.raises(OSError, match="logs"):
        pump.add("v", path.with_name("v.log"))
    output = pump.add("w", path)
    os.write(output._write_ends[0], b"lost\n")
    pump.drain()
    assert pump.lost_lines == 1
    path.parent.unlink()
    os.write(output._write_ends[0], b"there again\n")
    pump.drain()
    assert log(path) == [("INFO", "there again")]
    pump.close()


def test_redirection_is_undone_after_an_error_and_with_closed_descriptors(
    pump: OutputPump, tmp_path: Path
) -> None:
    before = [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)]
    with contextlib.suppress(RuntimeError), pump.add("w", tmp_path / "w.log").redirected():
        os.write(1, b"inside\n")
        raise RuntimeError
    assert [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)] == before
    pump.drain()
    assert pump.last_line("w") == "inside"
    saved = os.dup(0)
    os.close(0)
    try:
        with pump.add("w", tmp_path / "w.log").redirected():
            os.write(2, b"again\n")
        assert os.readlink("/proc/self/fd/0") == "/dev/null"
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    pump.drain()
    assert pump.last_line("w") == "again"


def test_the_last_line_is_one_of_this_life(pump: OutputPump, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    path.write_text(format_lines("w", logging.INFO, "done"))
    with pump.add("w", path).redirected():
        assert pump.last_line("w") == ""
        os.write(1, b"hello\n")
    pump.drain()
    assert pump.last_line("w") == "hello"
    path.unlink()  # a log that is begun anew is all of this life, though shorter than the old one
    path.write_text(format_lines("w", logging.INFO, "x"))
    assert pump.last_line("w") == "x"
