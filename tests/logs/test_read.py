from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.errors import UsageError
from motrix_rl.logs import follow, merge_logs, read_log, tail, worker_names
from motrix_rl.runs import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "runs", "task", "mujoco", "fastsac")
    made.record.begin()
    return made


def line(second: int, worker: str, text: str) -> str:
    return f"2026-11-29T18:43:{second:02d}.000 INFO  {worker} | {text}"


def append(run: RunDirectory, worker: str, *lines: str, end: str = "\n") -> None:
    with open(run.log_path(worker), "a") as file:
        file.write("\n".join(lines) + end)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=40)


@given(st.lists(TEXT, max_size=30), st.integers(0, 40))
def test_tail_is_the_end_of_the_file(lines: list[str], count: int) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write("".join(text + "\n" for text in lines).encode())
        file.flush()
        assert tail(file.name, count) == lines[len(lines) - min(count, len(lines)) :]


def test_tail_of_a_large_file_and_of_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("".join(f"line {i} {'x' * 300}\n" for i in range(2000)))
    assert [text.split()[1] for text in tail(path, 100)] == [str(i) for i in range(1900, 2000)]
    assert tail(tmp_path / "none", 3) == []


@pytest.mark.covers("U3")
def test_merged_by_time_with_foreign_lines_where_they_belong(run: RunDirectory) -> None:
    append(
        run,
        "collector-0",
        line(1, "collector-0", "a"),
        line(4, "collector-0", "d"),
        "torn line",
        line(5, "collector-0", "e"),
    )
    append(run, "learner-0", line(2, "learner-0", "b"), line(3, "learner-0", "c"), line(9, "learner-0", "f"))
    merged = [text.rpartition(" ")[2] for text in merge_logs(run)]
    assert merged == ["a", "b", "c", "d", "line", "e", "f"]
    assert worker_names(run) == ["collector-0", "learner-0"]
    assert [text[-1] for text in read_log(run, "learner-0")] == ["b", "c", "f"]


def test_unknown_worker(run: RunDirectory) -> None:
    append(run, "collector-0", line(1, "collector-0", "a"))
    for ask in (read_log, follow):
        with pytest.raises(UsageError, match="no worker 'colector-0'; did you mean 'collector-0'"):
            ask(run, "colector-0")


def test_follow_shows_what_comes_and_ends_with_the_run(run: RunDirectory) -> None:
    append(run, "collector-0", line(1, "collector-0", "old"), line(2, "collector-0", "last"))
    steps = iter(range(10))

    def stop() -> bool:
        step = next(steps)
        if step == 1:
            append(run, "collector-0", line(4, "collector-0", "second"), "half", end="")
            append(run, "learner-0", line(3, "learner-0", "first"))
        if step == 2:
            append(run, "collector-0", " a line")
            run.record.finish("finished")
        return not run.record.is_running()

    shown = [text.rpartition("| ")[2] for text in follow(run, lines=1, stop=stop, poll_s=0.0)]
    assert shown == ["last", "first", "second", "half a line"]
    assert [text[-3:] for text in follow(run, "learner-0")] == ["rst"]


def test_follow_begins_again_when_a_file_is_cut(run: RunDirectory) -> None:
    append(run, "w", line(1, "w", "a long line that goes away"))
    steps = iter(range(3))

    def stop() -> bool:
        step = next(steps)
        if step == 1:
            run.log_path("w").write_text(line(2, "w", "new") + "\n")
        return step == 2

    assert [text.rpartition("| ")[2] for text in follow(run, "w", stop=stop, poll_s=0.0)][-1] == "new"


def test_follow_ends_cleanly_on_ctrl_c(run: RunDirectory) -> None:
    append(run, "w", line(1, "w", "here"))
    code = "from motrix_rl.logs import follow\n"
    # Asked from inside the generator: a signal after the second time meets it, not its reader.
    code += "stop = lambda: bool(print('POLL', flush=True))\n"
    code += f"for line in follow({str(run)!r}, stop=stop, poll_s=0.2): print(line, flush=True)\nprint('END')"
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout
        said = [program.stdout.readline()[-5:] for _ in range(3)]
        assert said == ["POLL\n", "here\n", "POLL\n"]
        program.send_signal(signal.SIGINT)
        out, errors = program.communicate(timeout=20)
    finally:
        program.kill()
        program.wait()
    assert (out.replace("POLL\n", ""), errors, program.returncode) == ("END\n", "", 0)
