"""The rates beside MotrixLab's: windows and ratios, both sides, and what a measurement leaves."""

from __future__ import annotations

import json
import multiprocessing.synchronize
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench.peers import rate_table, rates, robot
from tests.bench.peers.__main__ import main
from tests.bench.peers.children import Child
from tests.bench.peers.footprints import SharedNames, mapped_names, pss_mib
from tests.bench.peers.rate_sides import EQUAL, STEPPING, UPDATING, Load, OurSide, Sample, Side, TheirSide
from tests.bench.peers.rates import Rates, window
from tests.e2e.running import living_in

#: Where `run` has made the peers' environments, for the one test that needs MotrixLab's.
VENVS = os.environ.get("MOTRIX_RL_PEERS_VENVS", "")


@pytest.fixture(scope="module")
def robot_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return robot.write_robot(tmp_path_factory.mktemp("robot"))


# Windows and the table --------------------------------------------------------------------------------------


def samples(*rows: tuple[float, int, int]) -> list[Sample]:
    return [Sample(*row) for row in rows]


def test_a_window_begins_after_the_first_update_has_settled() -> None:
    recorded = samples(
        (10, 0, 640), (11, 4, 704), (13.9, 40, 1000), (14.2, 44, 1100), (19, 99, 2000), (20, 110, 2200)
    )
    assert window(recorded, 3.0, 5.0) == (recorded[3], recorded[5])
    assert window(recorded, 3.0, 6.0) is None, "the record does not reach so far"
    assert window(recorded, 30.0, 1.0) is None
    assert window(recorded[:1], 0.0, 0.0) is None, "no update yet"
    assert rates.first_update(recorded) == recorded[1]


def found(*rounds: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return {
        "machine": {"cpu": "a processor"},
        "cores": [0, 1],
        "date": "2026-11-29T12:00:00+00:00",
        "load_before": 0.1,
        "seconds": 20.0,
        "versions": {"ours": {"torch": "2.13.0"}, "motrixlab": {"motrixlab": "0.4.0"}},
        "commit": "0123456789abcdef",
        "rounds": [{"ours": {"failed": []} | a, "motrixlab": {"failed": []} | b} for a, b in rounds],
    }


def test_ratios_are_taken_within_a_round() -> None:
    table = rate_table.summary(
        found(
            ({"updates_per_s": 10.0}, {"updates_per_s": 10.0}),
            ({"updates_per_s": 40.0}, {"updates_per_s": 20.0}),
            ({"updates_per_s": 30.0}, {"updates_per_s": 5.0}),
        )
    )
    (row,) = (row for row in table["rows"] if row["figure"] == "updates_per_s")
    assert row["ours"] == {"median": 30.0, "min": 10.0, "max": 40.0, "values": [10.0, 40.0, 30.0]}
    assert row["motrixlab"]["median"] == 10.0
    assert row["ratio"]["values"] == [1.0, 2.0, 6.0]
    assert row["ratio"]["median"] == 2.0, "not the ratio of the medians, which is 3"
    assert all(row["ours"] is None for row in table["rows"] if row["figure"] != "updates_per_s")
    json.dumps(table, allow_nan=False)
    said = rate_table.markdown(table)
    assert "updates/s | 30.0 (10.0 to 40.0) | 10.0 (5.0 to 20.0) | 2.00 (1.00 to 6.00) |" in said
    assert "environment steps/s |  |  |  |" in said
    assert "- ours: torch 2.13.0, commit 0123456789." in said
    assert "cores 0,1" in said


def test_a_round_without_one_side_has_no_ratio_and_says_why() -> None:
    ours = {"steps_per_s": 3000.0}
    table = rate_table.summary(found((ours, {"failed": ["0-stepping-motrixlab: no simulator"]})))
    (row,) = (row for row in table["rows"] if row["figure"] == "steps_per_s")
    assert (row["ours"]["values"], row["motrixlab"], row["ratio"]) == ([3000.0], None, None)
    assert table["failed"] == ["0-stepping-motrixlab: no simulator"]
    said = rate_table.markdown(table)
    assert "environment steps/s | 3,000 |  |  |" in said
    assert said.endswith("- failed: 0-stepping-motrixlab: no simulator")


def test_their_share_of_the_core_counts_our_operations_and_the_product_of_that_round() -> None:
    ours = {"learner_updates_per_s": 20.0, "gemm_share": 0.8, "gemm_gflop_s": 50.0, "flops_per_update": 2e9}
    table = rate_table.summary(found((ours, {"learner_updates_per_s": 10.0})))
    (row,) = (row for row in table["rows"] if row["figure"] == "gemm_share")
    assert row["motrixlab"]["values"] == [pytest.approx(0.4)]
    assert "| 80 | 40 | 2.00 |" in rate_table.markdown(table)


# Measuring --------------------------------------------------------------------------------------------------


class Scripted(Side):
    """A side whose commands are Python; `record.jsonl` is in the words of the other side's."""

    def __init__(self, name: str, learner: str, training: str) -> None:
        self.name, self._learner, self._training = name, learner, training  # type: ignore[misc]

    def training(self, load: Load, work: Path) -> list[str]:
        return [sys.executable, "-c", self._training.replace("ENVS", str(load.num_envs))]

    def learner(self, seconds: float, work: Path) -> list[str]:
        return [sys.executable, "-c", self._learner]

    samples = TheirSide.samples
    learner_figures = TheirSide.learner_figures


LEARNS = """print('{"updates_per_s": 5.0, "versions": {"a": "1"}}')"""
TRAINS = """
import json, time
begin = time.time()
while True:
    spent = time.time() - begin
    line = {"time": time.time(), "updates": round(1000 * max(0, spent - 0.2)), "generations": 100 * spent}
    with open("record.jsonl", "a") as record:
        record.write(json.dumps(line) + chr(10))
    time.sleep(0.01)
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SETTLE_S", 0.1)
    monkeypatch.setattr(rates, "LATE_LOOK_S", 0.05)


def measure(out: Path, sides: Sequence[Side], rounds: int = 1) -> dict[str, Any]:
    cpu = min(os.sched_getaffinity(0))
    return Rates(out, out / "venvs", [cpu], rounds, 0.3).measure(sides)


def test_figures_are_differences_over_the_window(tmp_path: Path, quick: None) -> None:
    figures = measure(tmp_path, [Scripted("motrixlab", LEARNS, TRAINS)])["rounds"][0]["motrixlab"]
    assert figures["failed"] == []
    assert figures["learner_updates_per_s"] == 5.0
    assert figures["updates_per_s"] == pytest.approx(1000.0, rel=0.02)
    assert figures["steps_per_s"] == pytest.approx(100.0 * STEPPING.num_envs, rel=0.02)
    assert 0.2 < figures["start_s"] < 5.0
    assert 2.0 < figures["memory_mib"] < 100.0


def test_sides_take_turns_a_failure_is_told_and_the_rest_goes_on(
    tmp_path: Path, quick: None, capfd: pytest.CaptureFixture[str]
) -> None:
    sides = [
        Scripted("ours", "raise ValueError('no core')", TRAINS),
        Scripted("motrixlab", LEARNS, "print('gone')"),
    ]
    result = measure(tmp_path, sides, rounds=2)
    said = re.findall(r"^(\d-\w+-\w+): log", capfd.readouterr().err, re.MULTILINE)
    measured = ("learner", "updating", "stepping")
    assert said[:6] == [f"0-{what}-{side}" for what in measured for side in ("ours", "motrixlab")]
    assert said[6:] == [f"1-{what}-{side}" for what in measured for side in ("motrixlab", "ours")]
    ours, theirs = (result["rounds"][1][side] for side in ("ours", "motrixlab"))
    assert ours["failed"] == ["1-learner-ours: ValueError: no core"]
    assert "updates_per_s" in ours
    assert theirs["failed"] == ["1-updating-motrixlab: gone", "1-stepping-motrixlab: gone"]
    assert json.loads((tmp_path / "rates.json").read_text()) == result
    assert result["versions"] == {"motrixlab": {"a": "1"}}


def test_what_hangs_is_ended(tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PATIENCE_S", 0.1)
    sleeps = "import time; time.sleep(600)"
    failed = measure(tmp_path, [Scripted("ours", sleeps, sleeps)])["rounds"][0]["ours"]["failed"]
    assert len(failed) == 3
    assert all("it hung; see" in why for why in failed)


def test_an_interrupt_keeps_what_was_finished_and_leaves_no_process(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[int] = []

    def press(child: Child, *_: Any) -> None:
        sessions.append(child.session)
        raise KeyboardInterrupt

    monkeypatch.setattr(rates, "_wait", press)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, [Scripted("motrixlab", LEARNS, "import time; time.sleep(600)")])
    kept = json.loads((tmp_path / "rates.json").read_text())
    assert kept["rounds"] == [{"motrixlab": {"failed": [], "learner_updates_per_s": 5.0}}]
    assert [living_in(session) for session in sessions] == [[]]


# What a program takes and leaves ----------------------------------------------------------------------------


def test_shared_pages_count_once() -> None:
    """64 MiB shared by two processes are 64 MiB in all, whatever each of them is said to have."""
    code = (
        "import mmap, os, sys, time\n"
        "block = mmap.mmap(-1, 64 << 20)\n"
        "block.write(b'x' * (64 << 20))\n"
        "if os.fork() == 0:\n"
        "    sum(block[k] for k in range(0, 64 << 20, 4096))\n"
        "    print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        pids = living_in(process.pid)
        assert len(pids) == 2
        assert 64 < pss_mib(pids) < 64 + 40
        assert pss_mib([2**22 + 1]) == 0.0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_names_of_a_killed_program_are_removed_and_no_others() -> None:
    """A semaphore of a killed process goes; one that a living process still uses stays."""
    kept = multiprocessing.get_context("spawn").Semaphore()
    code = (
        "import multiprocessing, time\n"
        "from multiprocessing import resource_tracker\n"
        "resource_tracker.register = lambda *_: None\n"
        "mine = multiprocessing.get_context('spawn').Semaphore()\n"
        "print(mine._semlock.name, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    names = SharedNames()
    try:
        assert process.stdout is not None
        theirs = "sem." + process.stdout.readline().strip().lstrip("/")
        ours = "sem." + kept._semlock.name.lstrip("/")  # type: ignore[attr-defined]
        assert theirs in mapped_names(process.pid)
        names.see([process.pid, os.getpid()])
        assert theirs not in names.remove(), "it lives"
    finally:
        process.kill()
        process.wait()
    assert names.remove() == [theirs]
    assert not Path("/dev/shm", theirs).exists()
    assert Path("/dev/shm", ours).exists()


# Our side ---------------------------------------------------------------------------------------------------

#: In place of `EQUAL`, to be done in seconds.
SMALL = {
    "algo.agent.actor_hidden_dim": 16,
    "algo.agent.critic_hidden_dim": 16,
    "algo.agent.num_atoms": 11,
    "algo.agent.batch_size": 16,
    "algo.agent.buffer_size": 2048,
    "algo.agent.learning_starts": 32,
    "num_envs": 8,
}


def test_our_side_trains_the_robot(tmp_path: Path, robot_files: Path, quick: None) -> None:
    cpu = min(os.sched_getaffinity(0))
    side = OurSide(robot_files, SMALL)
    run = Rates(tmp_path, tmp_path, [cpu], 1, 0.5)._training(side, Load(8, 2), tmp_path)
    assert run["updates_per_s"] > 2
    assert run["steps_per_s"] == pytest.approx(run["updates_per_s"] * 8 / 2, rel=0.25)
    assert 0.5 < run["start_s"] < 60
    assert 50 < run["memory_mib"] < 4000
    facts = side.facts(tmp_path)
    assert "torch" in facts["versions"]


def test_our_learner_alone_is_measured_beside_bare_products(tmp_path: Path, robot_files: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    figures = Rates(tmp_path, tmp_path, [cpu], 1, 0.2)._learner(OurSide(robot_files, SMALL), tmp_path)
    assert figures["learner_updates_per_s"] > 2
    assert 0 < figures["gemm_share"] < 1
    share = figures["learner_updates_per_s"] * figures["flops_per_update"] / (1e9 * figures["gemm_gflop_s"])
    assert share == pytest.approx(figures["gemm_share"])


def test_both_sides_are_asked_for_the_same(tmp_path: Path) -> None:
    ours, theirs = OurSide(tmp_path), TheirSide(tmp_path, Path("python"))
    for load in (UPDATING, STEPPING):
        words = ours.training(load, tmp_path)
        for key, value in EQUAL.items():
            assert f"algo.agent.{key}={value}" in words
        assert f"algo.agent.learning_starts={10 * load.num_envs}" in words
        assert f"algo.agent.buffer_size={1024 * load.num_envs}" in words
        shared = {f"algo.agent.batch_size={256}", f"algo.agent.num_updates={load.num_updates}"}
        assert shared <= set(words) & set(theirs.training(load, tmp_path))
        assert f"num_envs={load.num_envs}" in words
        assert str(load.num_envs) in theirs.training(load, tmp_path)
    assert (UPDATING, STEPPING) == (Load(64, 4), Load(256, 1))


@pytest.mark.skipif(
    not VENVS, reason="MotrixLab is no dependency: MOTRIX_RL_PEERS_VENVS names no environments"
)
def test_their_side_trains_the_robot(tmp_path: Path, robot_files: Path, quick: None) -> None:
    before = set(os.listdir("/dev/shm"))
    side = TheirSide(robot_files, Path(VENVS) / "motrixlab" / "bin" / "python")
    cpu = min(os.sched_getaffinity(0))
    run = Rates(tmp_path, tmp_path, [cpu], 1, 2.0)._training(side, Load(8, 1), tmp_path)
    assert run["updates_per_s"] > 0.5
    assert run["steps_per_s"] > 4
    assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("sem.mp-")}


# Mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rats"], "did you mean 'rates'?"),
        (["rates", "--rounds", "0"], "--rounds"),
        (["rates", "--rounds", "many"], "--rounds"),
        (["rates", "--seconds", "-1"], "above 0"),
        (["rates", "--cores", "4000"], "not to be had"),
        (["rates", "--cores", "a"], "--cores"),
        (["rates", "--second", "3"], "did you mean '--seconds'?"),
        (["rates", "--seeds", "1"], "--seeds"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Rates, "run", lambda _: pytest.fail("nothing is to be measured"))
    out = ["--out", str(tmp_path / "out")] if len(words) > 1 else []
    assert main([*words, *out]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
