"""What the supervisor shows and records."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import workers.status as status
from motrix_rl.config import load_config
from motrix_rl.runs import RunDirectory
from tests.e2e.running import options, word
from transport import Counter, Phase, WorkerBoard
from workers.planning import make_plan
from workers.resources import RunResources, worker_names
from workers.resume import RunStart
from workers.status import StatusBoard


@dataclass
class FakeWorker:
    role: str
    alive: bool = True
    exit_code: int | None = None
    incarnation: int = 0
    started_at: float = field(default_factory=time.monotonic)


class FakeFleet:
    def __init__(self, names: list[str]) -> None:
        self.workers = {name: FakeWorker(name.partition("-")[0]) for name in names}

    def living(self) -> list[FakeWorker]:
        return [worker for worker in self.workers.values() if worker.alive]


class FakeOutput:
    def last_line(self, name: str) -> str:
        return f"last of {name}"


@dataclass
class View:
    board: StatusBoard
    boards: dict[str, WorkerBoard]
    fleet: FakeFleet
    resources: RunResources
    clock: list[float]


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> View:
    settings = options(async__num_collectors=2, eval__interval=50, run_dir=tmp_path / "run")
    config = load_config([word(key, value) for key, value in settings.items()])
    plan = make_plan(config)
    resources = RunResources.create(
        plan, ring_capacity=4, start_generation=0, policy_size=plan.policy_size, deterministic=False
    )
    names = worker_names(plan)
    fleet = FakeFleet(names)
    directory = RunDirectory(tmp_path / "run")
    start = RunStart(config, directory, None, 0, None)
    clock = [time.monotonic()]
    monkeypatch.setattr(status.time, "monotonic", lambda: clock[0])
    made = StatusBoard(config, plan, start, fleet, resources, FakeOutput())  # type: ignore[arg-type]
    boards = {name: resources.control.board(name) for name in names}
    return View(made, boards, fleet, resources, clock)


@pytest.mark.covers("U2")
def test_the_boot_shows_every_worker_its_phase_and_its_last_line(view: View) -> None:
    view.boards["collector-1"].set_phase(Phase.BUILDING)
    view.resources.handshake.mark_ready("learner-0")
    view.clock[0] += 3.0
    shown = view.board.boot_view()
    assert view.board.booting
    assert shown.elapsed_s == pytest.approx(3.0)
    assert shown.timeout_s == 120.0
    workers = {worker.name: worker for worker in shown.workers}
    assert list(workers) == ["learner-0", "collector-0", "collector-1", "evaluator"]
    assert workers["collector-1"].phase == "building"
    assert workers["collector-1"].last_line == "last of collector-1"
    assert [name for name, worker in workers.items() if worker.ready] == ["learner-0"]
    view.boards["learner-0"].set_phase(Phase.DONE)  # after a Ctrl-C, instead of beginning
    assert not any(worker.ready for worker in view.board.boot_view().workers)
    view.board.started()
    assert not view.board.booting


@pytest.mark.covers("U2", "S1")
def test_a_dead_and_a_restarted_worker_are_shown_as_such(view: View) -> None:
    dead = view.fleet.workers["collector-0"]
    dead.alive, dead.exit_code = False, -9
    done = view.fleet.workers["evaluator"]
    done.alive, done.exit_code = False, 0
    view.boards["evaluator"].set_phase(Phase.DONE)
    view.fleet.workers["collector-1"].incarnation = 2
    workers = {worker.name: worker for worker in view.board.boot_view().workers}
    assert workers["collector-0"].phase == "dead"
    assert workers["evaluator"].phase == "done"
    assert workers["collector-1"].extra == "restarted 2x"


@pytest.mark.covers("U2", "D13")
def test_rates_shares_and_time_left_come_from_the_counters(view: View) -> None:
    view.board.started()
    learner, collectors = view.boards["learner-0"], [view.boards[f"collector-{i}"] for i in range(2)]
    for _ in range(5):
        view.board.run_view("running")
        view.clock[0] += 1.0
        for collector in collectors:
            collector.add(Counter.ENV_STEPS, 4 * 3)
        learner.set(Counter.GENERATION, 3 + int(view.boards["learner-0"]._row[8 + Counter.GENERATION]))
        learner.add(Counter.UPDATES, 6)
    view.board.learner_figures(
        {"updates": 30, "updates_due": 30, "losses": {"critic_loss": 1.0, "gone": None}}
    )
    shown = view.board.run_view("running")
    assert (shown.generation, shown.updates, shown.total_generations) == (15, 30, 60)
    assert shown.env_steps == 15 * 8
    assert shown.env_steps_per_s == pytest.approx(24.0)
    assert shown.updates_per_s == pytest.approx(6.0)
    assert shown.eta_s == pytest.approx(45 / 3)
    assert shown.losses == {"critic_loss": 1.0}
    assert shown.phase == "training"
    assert view.board.run_view("interrupted").phase == "stopping"


@pytest.mark.covers("U2")
def test_before_learning_there_is_no_time_left_to_tell(view: View) -> None:
    view.board.started()
    view.board.run_view("running")
    view.clock[0] += 1.0
    view.boards["learner-0"].set(Counter.GENERATION, 5)
    shown = view.board.run_view("running")
    assert shown.phase == "warm-up"
    assert shown.eta_s is None


def test_the_best_evaluation_stays(view: View) -> None:
    for generation, value in ((50, 3.0), (100, 7.0), (150, 5.0)):
        result: dict[str, Any] = {
            "generation": generation,
            "return_mean": value,
            "return_ci95": 0.1,
            "best": False,
        }
        view.board.evaluated(result)
    shown = view.board.run_view("running")
    assert (shown.best_eval, shown.last_eval) == (7.0, 5.0)
    assert view.board.summary()["best_eval"] == 7.0
    assert "evaluation at generation 150" in shown.messages[-1]


@pytest.mark.covers("D13", "A8")
def test_records_are_plain_data_and_count_what_was_cut_over_all_collectors(view: View) -> None:
    view.board.started()
    view.board.learner_figures({"generation": 20, "losses": {}})
    view.boards["collector-0"].add(Counter.NONFINITE, 2)
    view.boards["collector-1"].add(Counter.NONFINITE, 3)
    record = view.board.metrics_record()
    assert record["nonfinite"] == 5
    assert record["kind"] == "train"
    json.dumps([record, view.board.summary()], allow_nan=False)
