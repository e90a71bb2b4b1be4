"""Ranks in processes of their own, over Gloo: what one rank would have done, the same bits, the same collectives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from motrix_rl.checkpoint import CheckpointStore
from tests.e2e.running import Run, options, strict_updates
from tests.workers import procs_lockstep as procs
from tests.workers.crew_lockstep import RankCrew, follows_the_design, spelt

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def two() -> Iterator[RankCrew]:
    with RankCrew(2) as crew:
        yield crew


@pytest.fixture(scope="module")
def four() -> Iterator[RankCrew]:
    with RankCrew(4) as crew:
        yield crew


@pytest.mark.covers("D4", "D5")
@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_equal_one_rank_with_the_whole_batch(world_size: int, request: pytest.FixtureRequest) -> None:
    crew: RankCrew = request.getfixturevalue({2: "two", 4: "four"}[world_size])
    alone = procs.agent_of(None, torch.float64, max_grad_norm=0.5)
    fresh = alone.critic_group.param.clone()
    expected = procs.train(alone, 200, slice(0, procs.BATCH), torch.float64)
    assert not torch.equal(fresh, alone.critic_group.param)
    results = crew.run(procs.train_share, 200, torch.float64)
    for name, tensor in expected.items():
        np.testing.assert_allclose(results[0][0][name], tensor, rtol=1e-9, atol=1e-12, err_msg=name)
        for tensors, _ in results:
            assert tensors[name].tobytes() == results[0][0][name].tobytes(), name
    assert len({digest for _, digest in results}) == 1


@pytest.mark.covers("D4")
def test_in_single_precision_the_difference_stays_that_of_rounding(
    two: RankCrew, record_property: object
) -> None:
    expected = procs.train(
        procs.agent_of(None, torch.float32, max_grad_norm=0.5), 50, slice(0, procs.BATCH), torch.float32
    )
    (tensors, digest), (_, other) = two.run(procs.train_share, 50, torch.float32)
    assert digest == other
    worst = max(
        float(np.abs(tensors[name] - expected[name]).max()) for name in ("actor.param", "critic.param")
    )
    record_property("largest difference of a parameter after 50 updates in float32", worst)  # type: ignore[operator]
    assert worst < 1e-3


@pytest.mark.covers("D5")
def test_weights_are_the_same_and_samples_are_not(two: RankCrew) -> None:
    (weights, numbers), (same_weights, other_numbers) = two.run(procs.seeds_and_weights)
    assert weights == same_weights
    assert numbers != other_numbers


@pytest.mark.covers("D8", "D5")
def test_every_tensor_is_broadcast(four: RankCrew) -> None:
    results = four.run(procs.different_agents_agree)
    values, inside, digest = results[0]
    assert list(values.values()) == [float(at) for at in range(len(values))]  # rank 0's own
    assert all(other[0] == values and other[1] == inside and other[2] == digest for other in results)
    # Nothing inside the networks is left out: each tensor holds what its flat buffer was filled with.
    filled = {"actor": values["actor.param"], "critic": values["critic.param"], "target": values["target"]}
    for name, value in inside.items():
        assert value == filled[name.split(".")[0]] or name.endswith(("support", "atoms")), name


@pytest.mark.covers("D8")
def test_every_trainable_element_is_reduced(four: RankCrew) -> None:
    for found in four.run(procs.reduced_elements):
        assert found
        assert all(values == [2.5, 2.5] for values in found.values()), found


@pytest.mark.covers("D9")
def test_opposed_gradients_cancel_before_they_are_clipped(two: RankCrew) -> None:
    for norm, found, unchanged in two.run(procs.opposed_gradients, 1e3):
        assert (norm, found, unchanged) == (0.0, 0.0, True)
    clipped = two.run(procs.unequal_gradients)
    assert clipped[0] == clipped[1] == pytest.approx(4.0)  # of their mean 5; each clipped first gives 2.5


@pytest.mark.covers("D9", "D5")
@pytest.mark.parametrize(("culprit", "value"), [(0, float("inf")), (1, float("nan"))])
def test_what_is_not_finite_on_one_rank_is_skipped_by_all(two: RankCrew, culprit: int, value: float) -> None:
    results = two.run(procs.one_infinite, culprit, value)
    for untouched, went_on, skips, updates, digest in results:
        assert untouched
        assert went_on
        assert skips == 2.0  # critics and actor
        assert updates == 3  # a skipped one counts
        assert digest == results[0][-1]


@pytest.mark.covers("D11")
def test_merged_statistics_are_those_of_all_the_data(four: RankCrew) -> None:
    results = four.run(procs.merge_statistics)
    together = np.concatenate([procs.observed_rows(r).reshape(-1, procs.SPEC.obs_dim) for r in range(4)])
    together = together.astype(np.float64)
    for tensors, twice_changes_nothing, digest in results:
        assert twice_changes_nothing
        assert digest == results[0][2]
        count, mean, m2 = np.split(tensors["obs_norm.merged"], [1, 1 + procs.SPEC.obs_dim])
        assert count == len(together)
        np.testing.assert_allclose(mean, together.mean(0), rtol=1e-12)
        np.testing.assert_allclose(m2 / count, together.var(0), rtol=1e-9)


@pytest.mark.covers("D13")
def test_returns_are_weighted_by_counts_and_the_largest_lag_is_kept(two: RankCrew, tmp_path: Path) -> None:
    (record,), nothing = two.run(procs.gathered_metrics, tmp_path)
    assert nothing == []  # rank 0 speaks for all
    assert record["return_mean"] == pytest.approx((1 * 10 + 4 * 20) / 5)
    assert record["return_window"] == record["episodes"] == 5
    assert record["policy_lag_max"] == 6
    assert record["policy_lag_mean"] == pytest.approx((5 + 1 + 6 + 1) / 4)
    assert record["losses"]["critic_loss"] == pytest.approx(0.5)


@pytest.mark.covers("D5")
@pytest.mark.parametrize("culprit", [0, 1])
def test_one_bit_is_a_difference(two: RankCrew, culprit: int) -> None:
    for said in two.run(procs.replicas_that_differ, culprit):
        assert said == (
            "ReplicasDifferError: parameters of rank(s) [1] differ from rank 0's; the run cannot be trusted"
        )


@pytest.mark.covers("D6", "D1", "D5")
@pytest.mark.parametrize("slow", [0, 1])
def test_the_same_collectives_in_the_same_order_to_the_last_generation(
    two: RankCrew, tmp_path: Path, slow: int
) -> None:
    first, second = two.run(procs.learner_loop, tmp_path, 60, slow, 3 + slow, None, slow)
    assert first == second
    assert (first["admitted"], first["updates"]) == (60, 3 * (60 - 4))
    spelling = spelt(first["trace"], first["sizes"])
    assert follows_the_design(spelling, procs.small_config().policy_frequency), spelling
    assert spelling.count("C") == first["updates"]
    assert first["calls"]["gradients"] == spelling.count("C") + spelling.count("A")


@pytest.mark.covers("D6", "D1", "D5")
@pytest.mark.parametrize(
    ("which", "slow", "stop_at", "base"),
    [(2, 0, 0, 4), (3, 0, 4, 4), (4, 0, 33, 4), (5, 1, 0, 1), (6, 1, 0, 4), (7, 1, 5, 4), (8, 1, 30, 4)],
)
def test_the_same_collectives_through_a_stop(
    two: RankCrew, tmp_path: Path, which: int, slow: int, stop_at: int, base: int
) -> None:
    first, second = two.run(procs.learner_loop, tmp_path, 60, which, which, stop_at, slow, base)
    for what in ("trace", "calls", "updates", "hash", "admitted"):
        assert first[what] == second[what], what
    assert first["admitted"] < 60
    assert first["updates"] == 3 * max(0, first["admitted"] - base)
    spelling = spelt(first["trace"], first["sizes"])
    assert follows_the_design(spelling, procs.small_config().policy_frequency), spelling
    if slow == 1:  # rank 1 stopped waiting for what had been agreed, and took part in it all the same
        assert second["held"] < second["admitted"]
    newest = CheckpointStore(tmp_path / "checkpoints").newest_valid(lambda line: pytest.fail(line))
    assert (0 if newest is None else newest.step) == first["admitted"]
    if which in (5, 7):  # and every rank goes on from what it saved
        first, second = two.run(procs.learner_loop, tmp_path, 60, which + 4, which, None, 0, base)
        assert first["hash"] == second["hash"]
        assert first["updates"] == second["updates"] == 3 * (60 - base)
        assert first["held"] == second["held"] == 60


@pytest.mark.covers("D12", "D6")
@pytest.mark.fault
@pytest.mark.parametrize("victim", [0, 1])
def test_killing_any_rank_ends_all_and_names_it(victim: int, tmp_path: Path) -> None:
    settings = options(
        algo__trainer__num_learning_iterations=1_000_000, async__num_collectors=2, async__num_learners=2
    )
    with Run(tmp_path / "run", settings) as run:
        run.until_generation(20)
        run.send(f"learner-{victim}", 9)
        assert run.finish(40) == 1
        run.assert_nothing_left()
        assert f"run failed: learner-{victim}" in run.output
        assert f"learner-{1 - victim} " not in run.record().get("culprit", "")


@pytest.mark.covers("D1", "D6", "D13")
def test_a_run_of_two_ranks_counts_the_same_collectives_on_each(tmp_path: Path) -> None:
    settings = options(async__num_collectors=4, async__num_learners=2, checkpoint__interval=30)
    with Run(tmp_path / "run", settings) as run:
        assert run.finish() == 0, run.output
        run.assert_nothing_left()
        assert run.record()["updates"] == strict_updates(60, settings)
        counts = [run.log(f"learner-{rank}").partition("collectives: ")[2].splitlines()[0] for rank in (0, 1)]
        assert counts[0] == counts[1]
        last = [record for record in run.metrics() if record["kind"] == "train"][-1]
        assert last["episodes"] == 24  # of both ranks
