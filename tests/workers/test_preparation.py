"""The first update waits for what another thread prepares, alive, and fails with it; nothing else waits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from tests.workers.rig_workers import Rig, bursts, make_rig
from workers import learning_loop

TOTAL = 40


def rig_that_prepares(directory: Path) -> tuple[Rig, Future[float]]:
    rig = make_rig(directory, total=TOTAL)
    rig.learner.script = bursts(rig, np.random.default_rng(0), TOTAL)
    rig.learner.preparation = prepared = Future()
    return rig, prepared


@pytest.mark.covers("S2")
def test_the_warm_up_goes_on_and_the_first_update_waits_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_loop, "PREPARATION_BEAT_S", 0.01)
    rig, prepared = rig_that_prepares(tmp_path)
    beats: list[tuple[int, int]] = []
    beat, waits = rig.learner.board.beat, threading.Event()

    def noted() -> None:
        beats.append((rig.learner.admitted, rig.learner.agent.updates_done))
        if rig.learner.preparation is not None and beats.count(beats[-1]) >= 5:
            waits.set()
        beat()

    monkeypatch.setattr(rig.learner.board, "beat", noted)

    def finish() -> None:
        assert waits.wait(30)
        prepared.set_result(1.0)

    threading.Thread(target=finish, daemon=True).start()
    rig.learner.run()
    while_waiting = beats[: next(i for i, (_, updates) in enumerate(beats) if updates)]
    assert len(while_waiting) >= 5 and while_waiting[-1][0] > 0, (
        "it has admitted data, and has gone on beating"
    )
    assert rig.learner.admitted == TOTAL and rig.learner.agent.updates_done > 0
    assert rig.learner.preparation is None


def test_what_fails_in_the_other_thread_fails_the_learner_with_its_own_traceback(tmp_path: Path) -> None:
    rig, prepared = rig_that_prepares(tmp_path)

    def faulty() -> float:
        raise MemoryError("no room for the loops")

    try:
        faulty()
    except MemoryError as fault:
        prepared.set_exception(fault)
    with pytest.raises(MemoryError, match="no room for the loops") as told:
        rig.learner.run()
    assert "faulty" in [entry.name for entry in told.traceback]
    assert rig.learner.agent.updates_done == 0


def test_a_run_that_ends_in_its_warm_up_waits_for_nothing(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, total=2)
    rig.learner.script = bursts(rig, np.random.default_rng(0), 2)
    rig.learner.preparation = Future()
    rig.learner.run()
    assert rig.learner.admitted == 2 and rig.learner.agent.updates_done == 0
