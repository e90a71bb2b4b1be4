from __future__ import annotations

import logging
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.logs.lines import clean, format_lines, parse, timestamp
from motrix_rl.logs.pump import LineSplitter


@pytest.mark.covers("U3")
def test_format() -> None:
    line = format_lines("collector-0", logging.INFO, "message", 1_795_978_666.1239)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.123 INFO  collector-0 \| message\n", line)
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1_795_978_666))
    assert line.startswith(local)
    assert timestamp(1.9999) == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1)) + ".999"


@pytest.mark.parametrize(
    ("level", "name"), [(10, "DEBUG"), (20, "INFO"), (25, "INFO"), (30, "WARN"), (40, "ERROR"), (55, "FATAL"),
     (5, "DEBUG")],
)  # fmt: skip
def test_levels(level: int, name: str) -> None:
    parsed = parse(format_lines("w", level, "x").rstrip("\n"))
    assert parsed is not None and parsed.level == name


@given(st.text(max_size=100), st.sampled_from([10, 20, 30, 40, 50]))
def test_every_line_of_any_message_can_be_parsed(text: str, level: int) -> None:
    lines = format_lines("learner-0", level, text).split("\n")
    assert lines.pop() == "" and len(lines) == text.count("\n") + 1
    for line, said in zip(lines, text.split("\n"), strict=True):
        parsed = parse(line)
        assert parsed is not None and parsed.worker == "learner-0" and parsed.message == clean(said)


@pytest.mark.parametrize(
    ("raw", "text"),
    [("\x1b[1;31mred\x1b[0m", "red"), ("\x1b]0;title\x07x", "x"),
     ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
     ("a\x00b\x08c\x7f", "abc"), ("tab\tstays", "tab\tstays"), ("\x1b(B\x1b[Kx", "x"), ("end  ", "end")],
)  # fmt: skip
def test_clean(raw: str, text: str) -> None:
    assert clean(raw) == text


@pytest.mark.covers("U3")
@given(
    st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b and b"\r" not in b and b), max_size=12),
    st.lists(st.integers(1, 25), min_size=1, max_size=8),
)
def test_lines_do_not_depend_on_how_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    got: list[str] = []
    at = index = 0
    while at < len(data):
        step = cuts[index % len(cuts)]
        got += splitter.feed(data[at : at + step], 0.0)
        at, index = at + step, index + 1
    assert got + splitter.flush() == [line.decode(errors="backslashreplace") for line in lines]


def test_long_lines_become_several() -> None:
    splitter = LineSplitter(max_line=10)
    assert splitter.feed(b"a" * 25 + b"\n", 0.0) == ["a" * 10, "a" * 10, "a" * 5]
    assert splitter.feed(b"b" * 25, 0.0) == ["b" * 10, "b" * 10]
    assert splitter.flush() == ["b" * 5]


def test_progress_bars_leave_their_last_state() -> None:
    splitter = LineSplitter(max_line=20)
    assert splitter.feed(b"  1%\r 50%\r", 0.0) == []
    for percent in range(100):
        assert splitter.feed(b"\r%3d%%" % percent, 0.0) == []
    assert splitter.feed(b"\r100%\r\n", 0.0) == ["100%"]


def test_a_line_without_end_is_shown_after_a_while() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"password: ", 10.0) == []
    assert splitter.flush(10.5) == []
    assert splitter.flush(11.1) == ["password: "]
    assert splitter.flush() == []
