"""T3: what does not divide is refused, and what is suggested works."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.topology.strategies import UNHURRIED
from tests.topology.test_resolve import machine, request
from topology import RequestError, resolve_trainer_topology

SPEC = machine({0: "0-15"}, (0, 0))


@pytest.mark.covers("T3")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"num_envs": 100, "num_collectors": 3},
            r"num_envs=100 .* num_envs=99 or 102, num_collectors=2 or 4",
        ),
        ({"num_collectors": 3, "num_learners": 2, "num_envs": 96}, "num_collectors=2 or 4, num_learners=1"),
        ({"batch_size": 250, "num_learners": 4}, "batch_size=248 or 252, num_learners=2"),
        (
            {"num_envs": 63, "world": {"nnodes": 2}},
            "on each of 2 machines; nearest that work: num_envs=62 or 64",
        ),
    ],
)
def test_nearest_values(options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        resolve_trainer_topology(SPEC, request(**options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.covers("T3")
@UNHURRIED
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 12),
    st.none() | st.integers(1, 12),
    st.integers(1, 3),
)
def test_every_suggestion_works(
    envs: int, batch: int, learners: int, collectors: int | None, nnodes: int
) -> None:
    options: dict[str, object] = {
        "num_envs": envs, "batch_size": batch, "num_learners": learners, "num_collectors": collectors,
        "world": {"nnodes": nnodes},
    }  # fmt: skip
    legal = (
        (collectors or learners) % learners == 0
        and envs % (nnodes * (collectors or learners)) == 0
        and batch % (nnodes * learners) == 0
    )
    try:
        resolve_trainer_topology(SPEC, request(**options))  # type: ignore[arg-type]
    except RequestError as refused:
        assert not legal
        suggestions = refused.suggestions
    else:
        assert legal
        return
    assert suggestions, "a refusal always names a way out"
    for name, values in suggestions.items():
        for value in values:
            assert f"{value}" in str(refused.args[0]) if (refused := _refusal(options)) else False
            single = {**options, name: value}
            together = {**options, **{k: v[0] for k, v in suggestions.items()}}
            assert _resolves(single) or _resolves(together)


def _refusal(options: dict[str, object]) -> RequestError | None:
    try:
        resolve_trainer_topology(SPEC, request(**options))  # type: ignore[arg-type]
    except RequestError as refused:
        return refused
    return None


def _resolves(options: dict[str, object]) -> bool:
    return _refusal(options) is None


@pytest.mark.covers("T3")
@UNHURRIED
@given(st.integers(2, 200), st.integers(2, 12))
def test_suggested_environments_are_the_nearest(envs: int, collectors: int) -> None:
    assume(envs % collectors)
    refused = _refusal({"num_envs": envs, "num_collectors": collectors})
    assert refused is not None
    best = min(abs(n - envs) for n in range(collectors, envs + collectors + 1, collectors))
    assert abs(refused.suggestions["num_envs"][0] - envs) == best


def test_a_list_of_devices_fixes_the_learners() -> None:
    refused = _refusal({"batch_size": 255, "learner_devices": "cuda:0,cuda:1"})
    assert refused is not None
    assert set(refused.suggestions) == {"batch_size"}


def test_huge_counts_answer_at_once() -> None:
    assert _refusal({"num_envs": 1_000_003, "num_collectors": 64}) is not None
