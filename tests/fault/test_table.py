"""Every cell of the fault table, with real processes: outcome, time limit, culprit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.running import Run, options, strict_updates
from tests.fault.table import CELLS, KINDS, NOT_APPLICABLE, OUTCOMES, PARTS, TABLE, Cell

TOTAL = 60
#: A stopped worker runs on for a second while its stacks are written; there must be work left after that.
LONG_TOTAL = 600
STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})"
WITHIN_S = 10.0
#: File to which the seconds from fault to outcome are added, one record a line; unset: nowhere.
TIMES = "MOTRIX_RL_FAULT_TIMES"


def settings_for(cell: Cell) -> dict[str, object]:
    """Two collectors and two learners, as small as they come."""
    settings = options(
        algo__trainer__num_learning_iterations=LONG_TOTAL if cell.kind == "stop" else TOTAL,
        async__num_collectors=2,
        async__num_learners=2,
        async__max_collector_restarts=3,
        async__max_ingest_per_iter=2,
        checkpoint__interval=200 if cell.kind == "stop" else 20,
        logging__interval=10,
        env__step_s=0.005,
    )
    trainer = "algo.trainer.async_options."
    if cell.kind == "stop" and cell.role != "parent":
        settings[trainer + "heartbeat_timeout_s"] = 4
        if cell.part == "boot":
            settings[trainer + "boot_timeout_s"] = 45
    if cell.role == "collector" and cell.part == "checkpoint":
        settings["deterministic"] = True  # collectors save in this mode only
    return settings


def parameters() -> list[object]:
    cells = [cell for cell in CELLS if cell.outcome != "n/a"]
    marks = {True: pytest.mark.fault, False: pytest.mark.fault_all}
    return [pytest.param(cell, marks=marks[cell.in_ci], id=str(cell)) for cell in cells]


@pytest.mark.covers("S1", "S2", "S3", "S4", "R5", "D1", "D12", "A8", "H2")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", parameters())
def test_cell(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTRIX_RL_FAULT", cell.order)
    settings = settings_for(cell)
    with Run(tmp_path / "run", settings) as run:
        if cell.kind == "stop" and cell.role == "parent":
            wake(run)
        code = run.finish(150)
        ended = datetime.now()
        run.assert_nothing_left(WITHIN_S)
        struck = fault_time(run, cell)
        match cell.outcome:
            case "gone":
                assert code == -signal.SIGKILL
                ended = datetime.now()
            case "fails":
                assert code == 1, run.output
                assert_failed(run, cell)
            case "restarted":
                assert code == 0, run.output
                assert f"{cell.worker} " in run.output
                assert run.output.count("starting it again") == 1
                ended = stamps(run.log(cell.worker), "collecting environments")[-1]
                assert ended > struck
                assert_exact(run, settings)
            case "finishes":
                assert code == 0, run.output
                assert_exact(run, settings)
                assert_borne(run, cell)
        seconds = (ended - struck).total_seconds()
        assert seconds < cell.limit_s, f"{seconds} s from fault to outcome"
        note(cell, seconds)


def test_the_table_is_whole() -> None:
    assert len(CELLS) == 100
    assert len(TABLE) == len(KINDS) * 3
    assert all(len(row) == len(PARTS) and set(row) <= set(OUTCOMES) for row in TABLE.values())
    for cell in CELLS:
        assert cell.outcome != "n/a" or (cell.kind, cell.role) in NOT_APPLICABLE
    assert sum(cell.in_ci and cell.outcome != "n/a" for cell in CELLS) == 31


def wake(run: Run) -> None:
    """A stopped parent goes on when it is continued, as by `fg`."""
    run.until(lambda: state(run.process.pid) == "T", 120, "the parent is stopped")
    time.sleep(1.5)
    os.kill(run.process.pid, signal.SIGCONT)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stamps(text: str, what: str) -> list[datetime]:
    return [datetime.fromisoformat(found) for found in re.findall(rf"{STAMP}[^\n]*{what}", text)]


def fault_time(run: Run, cell: Cell) -> datetime:
    """When the fault struck, by the log of whom it struck."""
    name = "supervisor" if cell.role == "parent" else cell.worker
    found = stamps(run.log(name), f"ordered fault: {cell.kind}")
    assert found, f"the fault did not happen\n{run.output[-2000:]}"
    return found[0]


def assert_failed(run: Run, cell: Cell) -> None:
    if cell.role == "parent":
        assert "OrderedFaultError" in run.output
        return
    last = run.output[run.output.index("run failed:") :]
    assert cell.worker in last.splitlines()[0], last
    cause = {"kill": "killed by SIGKILL", "raise": "OrderedFaultError", "stop": ""}[cell.kind]
    assert cause in last.splitlines()[0]
    assert f"async_errors/{cell.worker}_error.log" in last
    assert run.error(cell.worker)
    record = run.record()
    assert record["outcome"] == "failed"
    assert cell.worker in record["reason"]
    if cell.kind == "stop":
        assert "most recent call first" in run.log(cell.worker), "its stacks are in its log"


def assert_exact(run: Run, settings: dict[str, object]) -> None:
    record = run.record()
    assert record["outcome"] == "finished"
    total = settings["algo.trainer.num_learning_iterations"]
    assert isinstance(total, int)
    assert record["generation"] == total
    assert record["updates"] == strict_updates(total, settings)


def assert_borne(run: Run, cell: Cell) -> None:
    """A fault that costs nothing is told all the same."""
    last = [record for record in run.metrics() if record["kind"] == "train"][-1]
    if cell.kind == "nan" and cell.role == "collector":
        assert last["nonfinite"] == last["episodes_aborted"] == 1
    elif cell.kind == "nan":
        assert last["losses"]["nonfinite_skips"] == 1
    elif cell.kind in ("kill", "raise"):
        assert f"{cell.worker} " in run.output
        assert "nothing is lost" in run.output


def note(cell: Cell, seconds: float) -> None:
    path = os.environ.get(TIMES)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"cell": str(cell), "seconds": round(seconds, 2)}) + "\n")
