from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from motrix_rl.console import base, render_status
from motrix_rl.console.base import has_cursor, make_console
from motrix_rl.console.panel import PanelConsole
from motrix_rl.console.plain import PlainConsole
from tests.console.samples import BOOT, RUN
from tests.console.terminal import Screen, Terminal

SIZES = [(80, 24), (200, 60), (40, 14)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    made = Terminal(80, 24)
    yield made
    made.close()


def frame(screen: Screen) -> list[str]:
    """The panel on the screen: from its upper to its lower edge, of which there must be one each."""
    lines = screen.lines
    tops = [i for i, line in enumerate(lines) if line.startswith("╭")]
    bottoms = [i for i, line in enumerate(lines) if line.startswith("╰")]
    assert len(tops) == 1 and len(bottoms) == 1, screen.text
    return lines[tops[0] : bottoms[0] + 1]


def settle(panel: PanelConsole, terminal: Terminal) -> Screen:
    """Reads until the panel has sent everything: a frame may be more than the terminal holds at once."""
    while not panel._file.idle():
        terminal.read()
    return terminal.read()


def expected(width: int, height: int) -> list[str]:
    return [line.plain for line in render_status(RUN, width, height - 1)]


@pytest.mark.covers("U2")
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_whole_run_on_the_screen(terminal: Terminal, width: int, height: int) -> None:
    terminal.resize(width, height)
    panel = PanelConsole(terminal.slave)
    panel.boot(BOOT)
    screen = terminal.read()
    assert "starting" in screen.text and not screen.cursor_visible
    for generation in range(0, 50_000, 10_000):
        panel.status(dataclasses.replace(RUN, generation=generation))
        panel.note(f"note at {generation} \x1b[2J{'x' * 300}")
        frame(settle(panel, terminal))
    panel.status(RUN)
    assert frame(terminal.read()) == expected(width, height)
    panel.close(RUN)
    screen = terminal.read()
    assert frame(screen) == expected(width, height)
    assert screen.cursor_visible and screen.x == 0 and screen.y == screen.lines.index(frame(screen)[-1]) + 1
    assert screen.wrapped == 0
    notes = [line for line in screen.text.split("\n") if line.startswith("note at")]
    assert [line.split()[2] for line in notes] == ["0", "10000", "20000", "30000", "40000"]


@pytest.mark.covers("U2")
def test_resize_leaves_one_whole_panel(terminal: Terminal) -> None:
    panel = PanelConsole(terminal.slave)
    panel.note("before the run")
    for width, height in [(80, 24), (60, 24), (100, 30), (40, 12), (80, 24)]:
        terminal.resize(width, height)
        panel.status(RUN)
        panel.status(RUN)
        screen = terminal.read()
        assert frame(screen) == expected(width, height), screen.text
        assert "before the run" in screen.text
    panel.close()
    assert terminal.read().cursor_visible


@pytest.mark.covers("U2")
@pytest.mark.parametrize("how", ["normal", "raise", "interrupt"])
def test_the_terminal_is_left_clean(terminal: Terminal, how: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.console.procs_console", how],
        stdin=terminal.slave, stdout=terminal.slave, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if how == "interrupt":
            assert program.stderr and program.stderr.readline().strip() == "READY"
            program.send_signal(signal.SIGINT)
        errors = program.communicate(timeout=30)[1]
    finally:
        program.kill()
        program.wait()
    screen = terminal.read()
    assert frame(screen) == expected(80, 24)
    assert "torn" not in screen.text and screen.cursor_visible
    assert program.returncode == {"normal": 0, "raise": 1, "interrupt": -signal.SIGINT}[how], errors
    assert ("Error" in errors) == (how == "raise")


@pytest.mark.covers("U2")
def test_no_colours_where_none_are_wanted(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    panel = PanelConsole(terminal.slave)
    panel.status(RUN)
    panel.close()
    assert frame(terminal.read()) == expected(80, 24)
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", terminal.raw)


@pytest.mark.covers("U2")
def test_ascii_where_the_locale_has_no_more(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "terminal_encoding", lambda: "iso8859-1")
    panel = PanelConsole(terminal.slave)
    panel.status(dataclasses.replace(RUN, messages=["Größe 漢字"]))
    panel.close()
    screen = terminal.read()
    assert terminal.raw.isascii()
    assert sum(line.startswith("+-") for line in screen.lines) == 2


@pytest.mark.covers("U2")
def test_a_stopped_terminal_stops_nobody(terminal: Terminal) -> None:
    panel = PanelConsole(terminal.slave)
    panel.status(RUN)
    terminal.read()
    termios.tcflow(terminal.slave, termios.TCOOFF)  # Ctrl-S
    began = time.monotonic()
    for _ in range(20):
        panel.status(RUN)
        panel.note("while stopped")
    assert time.monotonic() - began < 1.0
    termios.tcflow(terminal.slave, termios.TCOON)
    panel.close(RUN)
    screen = terminal.read()
    assert frame(screen) == expected(80, 24)
    assert "while stopped" in screen.text


@pytest.mark.covers("U2")
def test_a_stuck_reader_delays_nobody_and_tears_nothing(terminal: Terminal) -> None:
    terminal.resize(200, 60)
    panel = PanelConsole(terminal.slave)
    began = time.monotonic()
    for generation in range(300):  # much more than the terminal can hold, and nobody reads it
        panel.status(dataclasses.replace(RUN, generation=generation))
        panel.note(f"note {generation}")
    assert time.monotonic() - began < 5.0
    terminal.read()
    panel.status(RUN)
    assert frame(terminal.read()) == expected(200, 60)
    panel.status(RUN)
    terminal.read()
    panel.close(RUN)
    screen = terminal.read()
    assert frame(screen) == expected(200, 60)
    assert "note 299" in screen.text


@pytest.mark.covers("U2")
def test_a_terminal_that_is_gone_ends_nothing(terminal: Terminal) -> None:
    panel = PanelConsole(terminal.slave)
    panel.status(RUN)
    os.close(terminal.master)
    for _ in range(3):
        panel.status(RUN)
        panel.note("nobody reads this")
    panel.close(RUN)
    panel.close(RUN)


def test_descriptors_are_given_back(terminal: Terminal) -> None:
    before = len(os.listdir("/proc/self/fd"))
    panel = PanelConsole(terminal.slave)
    panel.status(RUN)
    terminal.read()
    panel.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.covers("U2")
def test_which_console(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    cases = [("auto", terminal.slave, PanelConsole), ("panel", terminal.slave, PanelConsole),
             ("plain", terminal.slave, PlainConsole), ("auto", write_end, PlainConsole),
             ("panel", write_end, PlainConsole)]  # fmt: skip
    for mode, fd, kind in cases:
        console = make_console(mode, stream_fd=fd)  # type: ignore[arg-type]
        assert type(console) is kind
        console.close()
    monkeypatch.setenv("TERM", "dumb")
    assert not has_cursor(terminal.slave)
    os.close(read_end)
    os.close(write_end)
