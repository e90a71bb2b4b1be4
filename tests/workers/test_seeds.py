"""Every random stream has a seed of its own, and only one."""

from __future__ import annotations

from itertools import product

import pytest

from workers.seeds import Stream, derive_seed


@pytest.mark.covers("D5", "E2")
def test_no_two_streams_share_a_seed() -> None:
    drawn = [
        derive_seed(seed, stream, index, life, start)
        for seed, stream, index, life, start in product(
            (0, 1, 2**32 - 1), Stream, range(8), range(4), (0, 1, 2, 10**6)
        )
    ]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= value < 2**63 for value in drawn)


@pytest.mark.covers("D5", "E2")
def test_a_seed_depends_on_nothing_else() -> None:
    assert derive_seed(3, Stream.ACTION, 1, 2) == derive_seed(3, Stream.ACTION, 1, 2)
    # Written down: a changed derivation would change every recorded run.
    assert derive_seed(0, Stream.ENVIRONMENT) == 2333092236187763913


@pytest.mark.covers("D5")
def test_the_initial_weights_do_not_depend_on_the_rank() -> None:
    assert derive_seed(5, Stream.INITIAL_WEIGHTS) == derive_seed(5, Stream.INITIAL_WEIGHTS, index=0)
