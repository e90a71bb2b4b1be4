"""The worlds' random streams."""

from __future__ import annotations

import numpy as np
import pytest

from motrix_rl.envs.noise import WorldNoise
from motrix_rl.errors import MotrixError


def ids(*worlds: int) -> np.ndarray:
    return np.asarray(worlds, np.int32)


def test_first_numbers_are_splitmix64() -> None:
    noise = WorldNoise(0, 0, 1)
    noise._start[:] = 1234567
    # From the algorithm's reference implementation, seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert noise._bits(ids(0), 3)[0].tolist() == expected


@pytest.mark.covers("E2")
def test_a_worlds_numbers_do_not_depend_on_who_is_drawn_with_it() -> None:
    together, alone, shard = WorldNoise(3, 0, 5), WorldNoise(3, 0, 5), WorldNoise(3, 2, 2)
    for size in (1, 3, 9):
        whole = together.normal(ids(0, 1, 2, 3, 4), size)
        single = np.concatenate([alone.normal(ids(world), size) for world in (4, 3, 2, 1, 0)])[::-1]
        np.testing.assert_array_equal(whole, single)
        np.testing.assert_array_equal(whole[2:4], shard.normal(ids(0, 1), size))


def test_distributions() -> None:
    noise = WorldNoise(1, 0, 200)
    worlds = np.arange(200, dtype=np.int32)
    uniform = noise.uniform(worlds, 500, -2.0, 6.0)
    assert uniform.min() >= -2
    assert uniform.max() < 6
    assert abs(uniform.mean() - 2) < 0.05
    assert abs(uniform.std() - 8 / np.sqrt(12)) < 0.05
    normal = noise.normal(worlds, 501, 3.0)
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 3) < 0.05
    assert abs((np.abs(normal) < 3).mean() - 0.6827) < 0.01
    # Neither along a world's stream nor between neighbours is there a correlation.
    assert abs(np.corrcoef(normal[:, :-1].ravel(), normal[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(normal[:-1].ravel(), normal[1:].ravel())[0, 1]) < 0.02


@pytest.mark.covers("C1")
def test_state() -> None:
    noise, other = WorldNoise(1, 0, 3), WorldNoise(2, 0, 3)
    noise.uniform(ids(0, 2), 4)
    other.load_state_dict(noise.state_dict())
    np.testing.assert_array_equal(noise.uniform(ids(0, 1, 2), 4), other.uniform(ids(0, 1, 2), 4))
    with pytest.raises(MotrixError, match="3 worlds"):
        WorldNoise(1, 0, 4).load_state_dict(noise.state_dict())


@pytest.mark.covers("E2")
def test_reseeding_starts_over() -> None:
    noise = WorldNoise(1, 0, 2)
    first = noise.uniform(ids(0, 1), 5)
    noise.reseed(1)
    np.testing.assert_array_equal(noise.uniform(ids(0, 1), 5), first)
    noise.reseed(2)
    assert (noise.uniform(ids(0, 1), 5) != first).all()
