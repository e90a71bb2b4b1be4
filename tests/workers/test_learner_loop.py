"""The loop of a single learner: updates exactly as owed, versions, saves, evaluations, no process group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motrix_rl.checkpoint import CheckpointStore, load_file
from tests.workers.doubles_workers import CountingAgent
from tests.workers.rig_workers import DrivenLearner, Rig, bursts, make_rig, small_agent
from tests.workers.rows_workers import ScriptedCollector
from workers.decision import Decision, Operation, UpdateSchedule

RATE, STARTS = 3, 40


def drive(rig: Rig, seed: int, total: int, deaths: float = 0.0) -> None:
    rng = np.random.default_rng(seed)
    write_on = bursts(rig, rng, total)

    def script(waiting: bool) -> None:
        write_on(waiting)
        victim = rig.collectors[int(rng.integers(len(rig.collectors)))]
        if victim.alive and rng.random() < deaths and victim.ring.committed < total:
            rig.lose(victim, torn=True)

    rig.learner.script = script
    rig.learner.run()


@pytest.mark.covers("D1", "D2", "S1")
@pytest.mark.parametrize("collectors", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_strict_holds_at_every_decision_through_delays_and_restarts(
    collectors: int, seed: int, tmp_path: Path
) -> None:
    base = -(-STARTS // (4 * collectors))

    def exact(learner: DrivenLearner, decision: Decision) -> None:
        assert learner.agent.updates_done == RATE * max(0, learner.admitted - base)

    rig = make_rig(
        tmp_path,
        collectors=collectors,
        total=90,
        settings=small_agent(num_updates=RATE, learning_starts=STARTS),
        agent=CountingAgent(),
        max_ingest=1 + seed * 3,
        save_interval=[0, 7, 30][seed],
        seed=seed,
        on_decision=exact,
    )
    drive(rig, seed, 90, deaths=0.05)
    assert rig.learner.agent.updates_done == RATE * (90 - base)
    assert [d.operation for d in rig.ranks.taken[-2:]] == [Operation.SAVE, Operation.STOP]


@pytest.mark.covers("D3")
def test_learner_bound_does_its_rate_once_for_each_progress(tmp_path: Path) -> None:
    rig = make_rig(
        tmp_path, total=90, agent=CountingAgent(), schedule=UpdateSchedule(RATE, 10, mode="learner_bound")
    )
    drive(rig, 5, 90)
    progresses = [d for d in rig.ranks.taken if d.operation is Operation.TRAIN and d.generation > 10]
    assert rig.learner.agent.calls == [RATE] * len(progresses)
    steps = np.diff([10, *(d.generation for d in progresses)])
    assert steps.max() > 1, "the script never let more than one generation arrive at once"


@pytest.mark.covers("D1", "S5")
@pytest.mark.parametrize("at", [0, 3, 17, 41])
def test_stop_finds_strict_exact_and_saves_just_there(at: int, tmp_path: Path) -> None:
    rig = make_rig(
        tmp_path,
        settings=small_agent(num_updates=RATE, learning_starts=STARTS),
        agent=CountingAgent(),
        total=90,
    )
    write_on = bursts(rig, np.random.default_rng(at), 90)

    def script(waiting: bool) -> None:
        write_on(waiting)
        if rig.learner.admitted >= at:
            rig.stop.set()

    rig.learner.script = script
    rig.learner.run()
    admitted = rig.learner.admitted
    assert admitted >= at
    assert rig.learner.agent.updates_done == RATE * max(0, admitted - 10)
    assert rig.saves.saved == ([admitted] if admitted else [])


@pytest.mark.covers("C2")
def test_checkpoints_are_taken_at_just_the_generations_they_name(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, agent=CountingAgent(), total=61, save_interval=13)
    drive(rig, 1, 61)
    assert rig.saves.saved == [13, 26, 39, 52, 61]


@pytest.mark.covers("D7")
def test_one_learner_starts_no_process_group_and_issues_no_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("a single learner called a collective")

    for name in ("init_process_group", "new_group", "all_reduce", "all_gather", "broadcast", "barrier"):
        monkeypatch.setattr(dist, name, forbidden)
    rig = make_rig(tmp_path, total=30, save_interval=15)
    drive(rig, 0, 30)
    assert rig.learner.agent.updates_done == 2 * (30 - 3)
    assert not dist.is_initialized()
    assert rig.learner.agent.reducer is None


@pytest.mark.covers("D10")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("capacity", "poll", "publish"), [(3, 1, 1), (4, 1, 4), (6, 3, 5)])
def test_policy_lag_stays_within_the_bound(
    seed: int, capacity: int, poll: int, publish: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ScriptedCollector.step

    def polls_now_and_then(self: ScriptedCollector, poll_now: bool = True) -> bool:
        return step(self, poll=self.producer.next_generation % poll == 0)

    monkeypatch.setattr(ScriptedCollector, "step", polls_now_and_then)
    rig = make_rig(
        tmp_path,
        collectors=2,
        total=90,
        settings=small_agent(num_updates=RATE, learning_starts=STARTS),
        agent=CountingAgent(),
        ring_capacity=capacity,
        publish_interval=publish,
    )
    drive(rig, seed, 90)
    assert len(rig.lags) > 50
    assert min(rig.lags) >= 0
    assert max(rig.lags) <= (capacity + poll) * RATE + publish
    assert max(rig.lags) >= RATE, "the script never let the collectors run ahead"


@pytest.mark.covers("D10", "D13")
def test_records_report_what_was_seen(tmp_path: Path) -> None:
    rig = make_rig(
        tmp_path,
        total=50,
        settings=small_agent(num_updates=RATE, learning_starts=STARTS),
        agent=CountingAgent(),
        report_interval=10,
    )
    told: list[dict[str, Any]] = []
    hear = rig.hear
    rig.hear = lambda: told.extend(heard := hear()) or heard  # type: ignore[method-assign,func-returns-value]
    drive(rig, 2, 50)
    rig.hear()
    records = [message for message in told if message["kind"] == "metrics"]
    for record in records:
        assert record["updates"] == record["updates_due"] == RATE * max(0, record["generation"] - 10)
        assert record["env_steps"] == 4 * record["generation"]
        assert record["replay_size"] == 4 * min(50, record["generation"])
        assert record["utd_kept"] in (None, RATE)
    tens = [record["generation"] // 10 for record in records]
    assert tens[:5] == [1, 2, 3, 4, 5]
    assert records[-1]["generation"] == 50
    lags = [record["policy_lag_max"] for record in records if record["policy_lag_max"] is not None]
    assert max(lags) == max(rig.lags)


@pytest.mark.covers("D2")
def test_the_first_version_is_published_when_learning_begins_and_each_later_one_at_the_interval(
    tmp_path: Path,
) -> None:
    published: list[tuple[int, int]] = []
    rig = make_rig(
        tmp_path,
        total=40,
        settings=small_agent(num_updates=RATE, learning_starts=STARTS),
        agent=CountingAgent(),
        publish_interval=4,
    )
    publish = rig.learner.publisher.publish

    def noted() -> None:
        publish()
        published.append((rig.learner.publisher.version, rig.learner.admitted))

    rig.learner.publisher.publish = noted  # type: ignore[method-assign]
    drive(rig, 0, 40)
    assert published[0][0] == 0
    assert published[0][1] > 10, "published in the warm-up"
    assert [version for version, _ in published] == list(range(0, RATE * 30 + 1, 4))


@pytest.mark.covers("D2")
def test_evaluations_are_asked_for_at_each_interval_and_at_the_end(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, total=50, agent=CountingAgent(), eval_interval=12, max_ingest=3)
    drive(rig, 0, 50)
    asked = rig.requests.at
    assert len(asked) == 5
    assert [admitted // 12 for admitted in asked] == [1, 2, 3, 4, 4]
    assert asked[-1] == 50


@pytest.mark.covers("C1", "C5")
def test_a_checkpoint_holds_everything_to_go_on_with(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, total=30, save_interval=20)
    drive(rig, 0, 30)
    newest = CheckpointStore(tmp_path / "checkpoints", 3).newest_valid(lambda line: pytest.fail(line))
    assert newest is not None
    assert newest.step == 30
    assert newest.metadata["updates"] == rig.learner.agent.updates_done == 2 * (30 - 3)
    assert UpdateSchedule(**newest.metadata["schedule"]) == rig.learner.schedule
    state = load_file(newest, "rank0.pt")
    again = make_rig(tmp_path / "again", total=30)
    assert again.learner.agent.parameter_hash() != rig.learner.agent.parameter_hash()
    again.learner.agent.load_state_dict(state["agent"])
    assert again.learner.agent.parameter_hash() == rig.learner.agent.parameter_hash()
    assert torch.equal(again.learner.agent.generator.get_state(), rig.learner.agent.generator.get_state())
    assert load_file(newest, "replay0.pt")["size"] == 30
