"""What is short is told, or made good, before anything is started."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from motrix_rl.config import load_config
from motrix_rl.errors import UsageError
from workers import preflight
from workers.planning import TrainingPlan, make_plan
from workers.preflight import allow_files, check_before_start

TOY = "task=tests.e2e.tasks_e2e:Toy/python.fastsac"


@pytest.fixture(scope="module")
def plan() -> TrainingPlan:
    return make_plan(load_config([TOY]))


def test_a_sound_machine_has_nothing_to_say(plan: TrainingPlan, tmp_path: Path) -> None:
    lines = check_before_start(load_config([TOY, f"runs_root={tmp_path}"]), plan)
    assert not [line for line in lines if not line.startswith("disk:")]


@pytest.mark.covers("S8")
def test_the_soft_limit_on_open_files_is_raised_and_the_hard_one_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(preflight.resource, "setrlimit", lambda which, limits: given.append(limits))
    for limits in [(64, 4096), (64, 80), (64, resource.RLIM_INFINITY), (64, 64), (1024, 4096)]:
        monkeypatch.setattr(preflight.resource, "getrlimit", lambda which, found=limits: found)
        allow_files(100)
    assert given == [(100, 4096), (80, 80), (100, resource.RLIM_INFINITY), (64, 64)]


@pytest.mark.covers("S8", "C3")
def test_a_disk_that_holds_no_checkpoints_is_told_in_one_line(
    plan: TrainingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2, 1, 1000))
    lines = check_before_start(load_config([TOY, f"runs_root={tmp_path}"]), plan)
    assert any("checkpoints take up to" in line and "checkpoint.keep_last=1" in line for line in lines)
    assert not any("\n" in line for line in lines)


@pytest.mark.covers("U1")
def test_orders_for_nobody_are_refused(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTRIX_RL_FAULT", "kill:learner-9:updating")
    with pytest.raises(UsageError, match="no worker 'learner-9'"):
        check_before_start(load_config([TOY]), plan)
