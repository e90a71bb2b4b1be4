"""The comparison with the peers: times from curves, the table, what is kept, and that nothing is left running."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench.peers import campaign, catalogue, curves, table, venvs
from tests.bench.peers.__main__ import main
from tests.bench.peers.campaign import Campaign, follow, spread
from tests.bench.peers.children import Child
from tests.bench.peers.contestants import Contestant, Ours, Progress
from tests.bench.peers.curves import Curve, Point, limit_for, read_curve, time_to, write_curve

ROOT = Path(__file__).resolve().parents[2]

#: A little curve: seconds, steps, updates, return.
RECORDED = ((57.8, 2000, 1899, -261.4), (118.2, 4000, 3899, 74.3), (179.9, 6000, 5899, 1210.6))


def points(*rows: tuple[float, int, int, float]) -> tuple[Point, ...]:
    return tuple(Point(*row) for row in rows)


def curve(
    peer: str,
    rows: Sequence[tuple[float, int, int, float]],
    *,
    seed: int = 0,
    limit_s: float = 1200.0,
    reason: str = "threshold",
    task: str = "halfcheetah",
    **end: Any,
) -> Curve:
    header = {
        "peer": peer,
        "task": task,
        "seed": seed,
        "env_id": catalogue.TASKS[task].env_id,
        "threshold": catalogue.TASKS[task].threshold,
        "limit_s": limit_s,
        "cores": [0, 1],
        "date": "2026-11-29T12:00:00+00:00",
        "machine": {"cpu": "a processor", "cpus": 2, "memory_gib": 23.5, "kernel": "6.1"},
        "load_before": 0.1,
        "start_s": 3.0,
        "versions": {"torch": "2.13.0"},
    }
    return Curve(header, points(*rows), {"reason": reason, **end})


def passes_at(seconds: float, peer: str = "ours", **more: Any) -> Curve:
    """A curve that is at exactly 3000 after so many seconds."""
    return curve(peer, [(seconds / 2, 1000, 100, 100.0), (seconds, 2000, 200, 3000.0)], **more)


# Curves -----------------------------------------------------------------------------------------------------


def test_the_time_is_where_the_line_between_two_evaluations_crosses_the_threshold() -> None:
    recorded = points(*RECORDED)
    assert time_to(recorded, 3000.0) is None
    by_hand = 118.2 + (1000.0 - 74.3) / (1210.6 - 74.3) * (179.9 - 118.2)
    assert time_to(recorded, 1000.0) == pytest.approx(by_hand)
    assert time_to(recorded, 1210.6) == pytest.approx(179.9)
    assert time_to(recorded, -300.0) == 57.8, "the first evaluation has nothing before it"
    assert time_to((), 0.0) is None


def test_the_first_crossing_counts_whatever_comes_after() -> None:
    up_and_down = points((10, 0, 0, 0.0), (20, 0, 0, 2000.0), (30, 0, 0, 500.0), (40, 0, 0, 3000.0))
    assert time_to(up_and_down, 1500.0) == pytest.approx(17.5)


def test_a_curve_survives_its_file(tmp_path: Path) -> None:
    path = curves.curve_path(tmp_path, "halfcheetah", "sb3", 0)
    assert read_curve(path) is None
    written = curve("sb3", RECORDED, reason="limit", limit_s=179.0)
    write_curve(path, written)
    assert read_curve(path) == written
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "header",
        *["eval"] * 3,
        "end",
    ]
    assert [file.name for file in path.parent.iterdir()] == ["halfcheetah-sb3-0.jsonl"]


def test_a_return_reached_after_the_limit_is_not_a_time() -> None:
    assert passes_at(100.0, limit_s=100.0).time_s == pytest.approx(100.0)
    assert passes_at(100.0, limit_s=99.0).time_s is None


def test_peers_are_given_twenty_times_our_median_and_never_more_than_the_cap() -> None:
    ours = [passes_at(40.0), passes_at(50.0), passes_at(70.0)]
    assert limit_for(1200.0, ours) == pytest.approx(1000.0)
    assert limit_for(900.0, ours) == 900.0
    assert limit_for(1200.0, []) == 1200.0
    never = curve("ours", RECORDED, reason="limit")
    assert limit_for(1200.0, [passes_at(10.0), never]) == 1200.0
    failed = curve("ours", (), reason="failed", why="no")
    assert limit_for(1200.0, [passes_at(10.0), failed]) == pytest.approx(200.0)


# The table --------------------------------------------------------------------------------------------------


def test_the_table_has_medians_ranges_and_ratios() -> None:
    found = table.summary(
        [
            *(passes_at(seconds, seed=seed) for seed, seconds in enumerate((50.0, 70.0, 60.0))),
            passes_at(720.0, "sbx"),
            curve("sb3", RECORDED, reason="limit"),
            curve("motrixlab", (), reason="failed", why="ImportError: no simulator", task="hopper"),
        ]
    )
    rows = {(row["task"], row["peer"]): row for row in found["rows"]}
    ours = rows["halfcheetah", "ours"]
    assert (ours["median_s"], ours["min_s"], ours["max_s"]) == (60.0, 50.0, 70.0)
    assert rows["halfcheetah", "sbx"]["times_ours"] == pytest.approx(12.0)
    beyond = rows["halfcheetah", "sb3"]
    assert (beyond["median_s"], beyond["times_ours"], beyond["times_ours_is_a_bound"]) == (None, 20.0, True)
    json.dumps(found, allow_nan=False)

    lines = table.markdown(found).splitlines()
    assert "| halfcheetah, 3000 | ours | 60 (50 to 70) | 3 |  | 3.0 s |" in lines[2]
    assert "| sb3 | > 1200 (best return 1211) | 1 | > 20.0 |" in lines[3]
    assert "| sbx | 720 | 1 | 12.0 |" in lines[4]
    assert "| hopper, 1500 | motrixlab | failed: ImportError: no simulator | 1 |" in lines[5]
    assert any("2026-11-29, a processor, cores 0,1: torch 2.13.0" in line for line in lines)


def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    write_curve(curves.curve_path(tmp_path, "halfcheetah", "ours", 0), passes_at(50.0))
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.peers", "table", "--out", str(tmp_path)],
            cwd=ROOT,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_median_of_seeds_that_partly_got_there() -> None:
    never = curve("ours", RECORDED, seed=2, reason="limit")
    (row,) = table.summary([passes_at(50.0), passes_at(80.0, seed=1), never])["rows"]
    assert (row["median_s"], row["min_s"], row["max_s"]) == (80.0, 50.0, None)
    assert table._times(row) == "80 (50 to > 1200)"
    (row,) = table.summary([passes_at(50.0), never, curve("ours", RECORDED, seed=1, reason="limit")])["rows"]
    assert row["median_s"] is None
    assert table._times(row) == "> 1200 (50 to > 1200) (best return 3000)"


# Measuring --------------------------------------------------------------------------------------------------


def test_ours_is_spread_between_theirs() -> None:
    assert spread(["o0", "o1", "o2"], ["a", "b", "c"]) == ["o0", "a", "o1", "b", "o2", "c"]
    assert spread(["o0", "o1", "o2"], ["a"]) == ["o0", "a", "o1", "o2"]
    assert spread(["o0"], ["a", "b"]) == ["o0", "a", "b"]
    assert spread([], ["a"]) == ["a"]
    assert spread(["o0", "o1"], []) == ["o0", "o1"]


def measured(monkeypatch: pytest.MonkeyPatch, out: Path, results: dict[str, Curve], again: bool = False):
    """Runs a campaign of sb3 and ours whose trainings are replaced; returns what was trained, with its limit."""
    trained: list[tuple[str, float]] = []

    def follow(contestant: Contestant, work: Path, header: dict[str, Any], cores: Sequence[int]):
        trained.append((header["peer"], header["limit_s"]))
        result = results[header["peer"]]
        return Progress(result.points, 0.0, time.time(), {}), result.end

    monkeypatch.setattr(campaign, "follow", follow)
    monkeypatch.setattr(campaign, "python_of", lambda peer, venvs: Path(sys.executable))
    monkeypatch.setattr(campaign, "_confirmed", lambda *_: 3000.0)
    fine = Campaign(
        out, out / "venvs", ["ours", "sb3"], ["halfcheetah"], [0], [0], [0], cap_s=1200.0, again=again
    ).run()
    return fine, trained


def test_finished_curves_are_kept_and_failures_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = {"ours": passes_at(40.0), "sb3": curve("sb3", (), reason="failed", why="MemoryError")}
    assert measured(monkeypatch, tmp_path, failing) == (False, [("ours", 1200.0), ("sb3", 800.0)])
    assert "sb3, seed 0: failed: MemoryError" in capsys.readouterr().out

    working = failing | {"sb3": curve("sb3", RECORDED, reason="limit")}
    assert measured(monkeypatch, tmp_path, working) == (True, [("sb3", 800.0)])
    said = capsys.readouterr().out
    assert "kept from" in said
    assert "sb3, seed 0: > 800 s (best return 1211)" in said

    assert measured(monkeypatch, tmp_path, working) == (True, [])
    assert measured(monkeypatch, tmp_path, working, again=True)[1] == [("ours", 1200.0), ("sb3", 800.0)]


class Scripted(Contestant):
    """A trainer that runs the given Python and has recorded the given points from the start."""

    def __init__(self, code: str, recorded: Sequence[Point] = (), *, stops_itself: bool = True) -> None:
        self._code, self._recorded, self.stops_itself = code, tuple(recorded), stops_itself

    def command(self) -> list[str]:
        return [sys.executable, "-c", self._code]

    def progress(self) -> Progress:
        clock_s = self._recorded[-1].elapsed_s if self._recorded else 0.0
        return Progress(self._recorded, clock_s, 1.0)


FOREVER = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("contestant", "expected"),
    [
        (Scripted(FOREVER, points((1, 1, 1, 9.0))), {"reason": "threshold"}),
        (Scripted(FOREVER, points((5, 1, 1, 0.0)), stops_itself=False), {"reason": "limit"}),
        (Scripted("pass", points((4, 1, 1, 0.0))), {"reason": "limit"}),
        (Scripted("raise ValueError('no task')"), {"reason": "failed", "why": "ValueError: no task"}),
        (Scripted("print('done')", stops_itself=False), {"reason": "failed", "why": "done"}),
    ],
)
def test_how_a_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contestant: Contestant, expected: dict[str, str]
) -> None:
    monkeypatch.setattr(campaign, "LOOK_S", 0.05)
    header = {"threshold": 8.0, "limit_s": 5.0}
    assert follow(contestant, tmp_path, header, [min(os.sched_getaffinity(0))])[1] == expected


def test_what_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LOOK_S", 0.05)
    monkeypatch.setattr(campaign, "HANGING_S", 0.1)
    end = follow(Scripted(FOREVER), tmp_path, {"threshold": 8.0, "limit_s": 0.1}, [])[1]
    assert end["reason"] == "failed"
    assert "hung" in end["why"]


def interrupt(child: Child, log: Path) -> None:
    """Presses Ctrl-C once the child's worker has said something."""
    with child:
        deadline = time.monotonic() + 30
        while not log.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(child.members()) == 2
        raise KeyboardInterrupt


def test_an_interrupt_ends_the_whole_tree_pinned_or_stopped(tmp_path: Path) -> None:
    """A worker in a process group of its own, deaf to SIGTERM and even stopped, goes with its parent."""
    code = (
        "import os, signal, subprocess, sys, time\n"
        "worker = 'import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setpgid(0, 0);'\n"
        "worker += 'print(os.sched_getaffinity(0), flush=True); os.kill(os.getpid(), signal.SIGSTOP)'\n"
        "subprocess.Popen([sys.executable, '-c', worker])\n"
        "time.sleep(600)\n"
    )
    cpu = min(os.sched_getaffinity(0))
    log = tmp_path / "log"
    child = Child([sys.executable, "-c", code], log, cpus=[cpu])
    with pytest.raises(KeyboardInterrupt):
        interrupt(child, log)
    assert log.read_text() == f"{{{cpu}}}\n"
    assert child.members() == []


def test_a_training_has_time_to_end_by_itself(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved'), sys.exit()))\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    log = tmp_path / "log"
    with Child([sys.executable, "-c", code], log):
        while not log.read_text():
            time.sleep(0.02)
    assert log.read_text() == "ready\nsaved\n"


def test_our_curve_is_read_from_the_run(tmp_path: Path) -> None:
    ours = Ours("hopper", 3, tmp_path)
    assert ours.progress() == Progress()
    ours.run_dir.mkdir()
    records = [
        {"kind": "train", "time": 1010.0, "elapsed_s": 10.0, "updates": 900},
        {"kind": "eval", "time": 1012.0, "elapsed_s": 12.0, "env_steps": 8000, "eval": {"return_mean": 70.0}},
        {"kind": "train", "time": 1014.5, "elapsed_s": 14.5, "updates": 1300},
    ]
    (ours.run_dir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    progress = ours.progress()
    assert progress.points == points((12.0, 8000, 900, 70.0))
    assert (progress.clock_s, progress.started) == (14.5, 1000.0)


# Mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["run", "--peers", "ours,sb4"], "did you mean 'sb3'?"),
        (["run", "--peers", ","], "valid: ours, sb3, sbx, motrixlab"),
        (["run", "--tasks", "halfchetah"], "did you mean 'halfcheetah'?"),
        (["run", "--cap", "0"], "above 0"),
        (["run", "--seeds", "one"], "0,1,2"),
        (["run", "--cores", "4000"], "not to be had"),
        (["run", "--core", "0"], "did you mean '--cores'?"),
        (["table"], "peers run --out"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")] if len(words) > 1 or words == ["table"] else []
    assert main([*words, *out]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_why_pip_failed_is_one_line() -> None:
    unreachable = (
        "WARNING: Retrying after connection broken by 'NewConnectionError(\"Connection refused\")'\n"
        "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)\n"
    )
    assert venvs.reason_in(unreachable) == "no network: the package index cannot be reached"
    missing = (
        "Collecting numpy\nERROR: No matching distribution found for motrixsim==0.10.1\nERROR: and more\n"
    )
    assert venvs.reason_in(missing) == "No matching distribution found for motrixsim==0.10.1"
    assert venvs.reason_in("Error: no space left\n\n") == "Error: no space left"
    assert venvs.reason_in("") == "it said nothing"


@pytest.mark.parametrize("complete", [True, False])
def test_an_environment_is_made_once_and_a_failed_one_leaves_nothing(
    complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def make(command: list[str], log: Path, failed: str) -> None:
        ran.append(command)
        python = tmp_path / "sb3" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()
        if not complete and "install" in command:
            raise KeyboardInterrupt

    monkeypatch.setattr(venvs, "_run", make)
    if not complete:
        with pytest.raises(KeyboardInterrupt):
            venvs.python_of("sb3", tmp_path)
        assert not (tmp_path / "sb3").exists()
        return
    assert venvs.python_of("sb3", tmp_path) == venvs.python_of("sb3", tmp_path)
    assert len(ran) == 2, "made once"
    (tmp_path / "sb3" / "requirements.txt").write_text("torch==1.0\n")
    venvs.python_of("sb3", tmp_path)
    assert len(ran) == 4, "made anew where the versions have changed"


def test_every_requirement_is_pinned() -> None:
    for peer in catalogue.PEERS:
        lines = (catalogue.HERE / "requirements" / f"{peer}.txt").read_text().splitlines()
        assert all("==" in line for line in lines if not line.startswith("#"))
        assert "torch==2.13.0" in lines


def test_trainers_import_nothing_of_ours() -> None:
    """What MotrixLab's trainer calls `motrix_rl` is MotrixLab's package of that name, in its own environment."""
    for path in (catalogue.HERE / "trainers").glob("*.py"):
        found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        forbidden = {"tests", "topology", "transport", "workers"}
        if path.name != "train_motrixlab.py":
            forbidden.add("motrix_rl")
        assert forbidden.isdisjoint(found)
        assert "gymnasium" in found
