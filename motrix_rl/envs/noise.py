"""Random numbers for many worlds at once, each world with a stream of its own.

A world's stream depends on (seed, index of the world in the run) alone: not on the other worlds, not on how
the worlds are divided among processes, not on which of them happen to be reset together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motrix_rl.errors import MotrixError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


class WorldNoise:
    """One SplitMix64 stream a world (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
    generators"), evaluated as a function of its position.

    A `numpy.random.Generator` a world would cost a Python call for each world that is reset; a function of
    the position serves any number of worlds in a few array operations, and its state is one integer each.
    """

    def __init__(self, seed: int, first_world: int, num_worlds: int) -> None:
        self._first_world = first_world
        self._num_worlds = num_worlds
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Starts every stream anew, at a place drawn from (seed, index of the world)."""
        starts = [
            np.random.SeedSequence([seed, self._first_world + i]).generate_state(1, np.uint64)[0]
            for i in range(self._num_worlds)
        ]
        self._start = np.asarray(starts, np.uint64)
        self._position = np.zeros(self._num_worlds, np.uint64)

    def uniform(
        self,
        worlds: NDArray[np.int32],
        size: int,
        low: float | NDArray[np.float64] = 0.0,
        high: float | NDArray[np.float64] = 1.0,
    ) -> NDArray[np.float64]:
        """Returns [len(worlds), size] float64, uniform in [low, high); `worlds` without repetition."""
        unit = (self._bits(worlds, size) >> np.uint64(11)).astype(np.float64) * _TO_UNIT
        return low + (high - low) * unit

    def normal(self, worlds: NDArray[np.int32], size: int, scale: float = 1.0) -> NDArray[np.float64]:
        """Returns [len(worlds), size] float64, normal with mean 0 (Box and Muller 1958)."""
        pairs = (size + 1) // 2
        unit = self.uniform(worlds, 2 * pairs)
        # 1 - u lies in (0, 1], so that the logarithm is finite.
        radius = np.sqrt(-2.0 * np.log(1.0 - unit[:, :pairs]))
        angle = 2.0 * np.pi * unit[:, pairs:]
        both = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
        return scale * both[:, :size]

    def _bits(self, worlds: NDArray[np.int32], size: int) -> NDArray[np.uint64]:
        position = self._position[worlds, None] + np.arange(1, size + 1, dtype=np.uint64)
        self._position[worlds] += np.uint64(size)
        z = self._start[worlds, None] + position * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        return z ^ (z >> np.uint64(31))

    def state_dict(self) -> dict[str, Any]:
        """Returns the streams' starts and positions, [num_worlds] each (int64 views of uint64)."""
        return {"start": self._start.view(np.int64).copy(), "position": self._position.view(np.int64).copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            MotrixError: it belongs to another number of worlds.
        """
        if len(state["start"]) != self._num_worlds:
            raise MotrixError(f"saved streams of {len(state['start'])} worlds, wanted {self._num_worlds}")
        self._start = np.array(state["start"], np.int64).view(np.uint64)
        self._position = np.array(state["position"], np.int64).view(np.uint64)
