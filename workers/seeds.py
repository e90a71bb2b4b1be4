"""Where every random stream of a run comes from: one seed, and who draws from it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Who draws. The number is part of every seed, so never renumber."""

    ENVIRONMENT = 1
    ACTION = 2
    INITIAL_WEIGHTS = 3
    SAMPLING = 4
    EVALUATION = 5


def derive_seed(seed: int, stream: Stream, index: int = 0, incarnation: int = 0, start: int = 0) -> int:
    """A 63-bit seed for one stream.

    Args:
        seed: the run's seed.
        stream: who draws.
        index: collector or rank.
        incarnation: life of the worker; a restarted collector draws new numbers.
        start: generation that this life of the run began at; a resumed run draws new numbers, too.
    """
    life = (incarnation, start) if start else (incarnation,)
    sequence = np.random.SeedSequence(seed, spawn_key=(int(stream), index, *life))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
