from __future__ import annotations

import dataclasses
import io
import itertools

import pytest
import rich.console
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from motrix_rl.console import BootStatus, RunStatus, WorkerStatus, render_boot, render_status, summary_line
from motrix_rl.console.layout import ASCII, UNICODE, Glyphs, fit, fit_middle
from tests.console.samples import BOOT, RUN, RUN_DIR

SIZES = [(80, 24), (200, 60), (40, 24), (40, 10), (60, 12)]
# Anything a log line or a note may hold, escape sequences and wide characters included.
ODD = "\x1b[31m\t\r\n\u200f漢字🙂e\u0301"
WILD = st.text(st.one_of(st.characters(), st.sampled_from(ODD)), max_size=200)
FIGURE = st.one_of(st.none(), st.floats())


def check_shape(lines: list[Text], width: int, height: int, *, framed: bool) -> None:
    assert len(lines) <= height
    for line in lines:
        assert "\n" not in line.plain and "\r" not in line.plain and "\x1b" not in line.plain
        assert cell_len(line.plain) == width if framed else cell_len(line.plain) <= width


def plain(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


@pytest.mark.covers("U2")
@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_panels_are_whole(width: int, height: int, glyphs: Glyphs) -> None:
    for lines in (render_status(RUN, width, height, glyphs), render_boot(BOOT, width, height, glyphs)):
        check_shape(lines, width, height, framed=True)
        assert lines[0].plain[0] == glyphs.corners[0] and lines[-1].plain[-1] == glyphs.corners[3]
        assert all(line.plain[0] == line.plain[-1] == glyphs.vertical for line in lines[1:-1])
        if glyphs.ascii_only:
            assert plain(lines).isascii()


@pytest.mark.covers("U2")
@pytest.mark.parametrize(("width", "height"), [(80, 23), (200, 59)])
def test_everything_asked_for_is_shown(width: int, height: int) -> None:
    text = plain(render_status(RUN, width, height))
    for piece in ("cartpole-swingup/mujoco.fastsac", "25%", "left 3m12s", "812.3 (last 100 episodes)",
                  "length 1000", "best 833.1", "15,432/s", "1,234/s", "UTD asked 4.00 kept 3.98", "step 70%",
                  "ingest 5%",
                  "filled 2.6 of 8", "lag mean 3.20", "max 9.00", "critic 2.345", "actor -12.30",
                  "alpha 0.0123", "saved checkpoint runs/", "checkpoints/step_000012000", RUN_DIR,
                  "learner-0",
                  "collector-0",
                  "evaluator", "warm-up finished at generation 128"):  # fmt: skip
        assert piece in text, piece
    boot = plain(render_boot(BOOT, width, height))
    for piece in (
        "3 of 3 workers ready",
        "at most 2m00s",
        "collect 33s",
        "train 12s",
        "published version 1200",
    ):
        assert piece in boot, piece


@pytest.mark.covers("U2")
def test_least_important_rows_go_first() -> None:
    shown = [plain(render_status(RUN, 80, height)) for height in range(5, 24)]
    assert "25%" in shown[0] and "812.3" in shown[0]
    for smaller, larger in itertools.pairwise(shown):
        assert smaller.count("\n") <= larger.count("\n")
    for early, late in (
        ("812.3", "critic 2.345"),
        ("left 3m12s", "step 70%"),
        ("saved checkpoint", "│ run "),
    ):
        assert all(early in text for text in shown if late in text), (early, late)


@pytest.mark.covers("U2")
def test_many_workers_show_the_unusual_ones() -> None:
    workers = [WorkerStatus(f"collector-{i}", "collector", "stepping", 1.0, i, "x", True) for i in range(64)]
    workers[50] = dataclasses.replace(workers[50], phase="restart", ready=False)
    text = plain(render_status(dataclasses.replace(RUN, workers=workers), 80, 40))
    assert "collector-50" in text and "and 44 more workers" in text


@pytest.mark.covers("U2")
def test_nothing_known_yet() -> None:
    empty = RunStatus("task/mujoco.fastsac", "runs/x", 0.0)
    for width, height in SIZES:
        check_shape(render_status(empty, width, height), width, height, framed=True)
    assert "-" in summary_line(empty)


worker = st.builds(
    WorkerStatus, WILD, WILD, WILD, st.floats(), st.none(), last_line=WILD, ready=st.booleans(), extra=WILD
)
run = st.builds(
    RunStatus, WILD, WILD, st.floats(), st.integers(0, 10**12), st.one_of(st.none(), st.integers(0, 10**12)),
    return_mean=FIGURE, eta_s=FIGURE, ring_fill=FIGURE, updates_per_s=FIGURE,
    losses=st.dictionaries(WILD, st.floats(), max_size=8),
    learner_budget=st.dictionaries(WILD, st.floats(), max_size=4),
    messages=st.lists(WILD, max_size=5), workers=st.lists(worker, max_size=12), phase=WILD,
)  # fmt: skip


@pytest.mark.covers("U2")
@settings(max_examples=60)
@given(run, st.integers(1, 220), st.integers(1, 60), st.sampled_from([UNICODE, ASCII]))
def test_any_status_fits_any_size(status: RunStatus, width: int, height: int, glyphs: Glyphs) -> None:
    framed = width >= 16 and height >= 5
    check_shape(render_status(status, width, height, glyphs), width, height, framed=framed)
    boot = BootStatus(
        status.title, status.run_dir, status.elapsed_s, status.workers, messages=status.messages
    )
    check_shape(render_boot(boot, width, height, glyphs), width, height, framed=framed)


@pytest.mark.covers("U2")
@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}, {"TERM": "xterm-256color"}]
)
def test_rich_draws_the_lines_as_they_are(environment: dict[str, str]) -> None:
    lines = render_status(RUN, 80, 23)
    console = rich.console.Console(
        file=io.StringIO(), width=80, height=24, force_terminal=True, _environ=environment
    )
    with console.capture() as capture:
        for line in lines:
            console.print(line)
    drawn = capture.get()
    assert Text.from_ansi(drawn).plain.rstrip("\n") == plain(lines)
    if "NO_COLOR" in environment:
        assert "\x1b[3" not in drawn and ";3" not in drawn


@given(WILD, st.integers(0, 60))
def test_cut_text_fits(text: str, width: int) -> None:
    assert cell_len(fit(text, width, UNICODE)) <= width
    assert cell_len(fit_middle(text, width, UNICODE)) <= width


def test_a_path_keeps_its_end() -> None:
    assert (
        fit_middle("saved checkpoint runs/a/b/c/step_000012000", 30, UNICODE)
        == "saved checkpoi…/step_000012000"
    )


@pytest.mark.covers("U2")
def test_summary_is_one_line_with_the_same_figures() -> None:
    line = summary_line(RUN)
    assert "\n" not in line
    for piece in ("12,345/50,000 (25%)", "left 3m12s", "return 812.3", "best 833.1", "15,432/s", "kept 3.98",
                  "wait 18%", "filled 2.6 of 8", "critic 2.345"):  # fmt: skip
        assert piece in line, piece
