"""How a loop is compiled and kept, and the exponential, which is what most of them wait for."""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
from collections.abc import Callable
from typing import Any

import numba
import numba.core.config
import numpy as np
from numba.core.runtime.nrt import rtsys
from numba.extending import overload

from motrix_rl.algorithms.fastsac.kept_loops import cache_directory

log = logging.getLogger(__name__)

#: A full disk; a file that a crash of the machine has cut off.
_CACHE_FAULTS = (OSError, EOFError, pickle.UnpicklingError, ValueError, RuntimeError)

Array = np.ndarray[Any, Any]


_settings: Any = numba.core.config
_settings.CACHE_DIR = _settings.CACHE_DIR or str(cache_directory())
_settings.DISABLE_JIT = 0  # a debugging aid for one's own functions; nothing here can do without


class _Kept:
    """Numba's cache of one loop; where it fails it costs a compilation, and never the run."""

    def __init__(self, cache: Any, name: str) -> None:
        self._cache, self._name = cache, name

    def load_overload(self, signature: Any, context: Any) -> Any:
        """What is kept for these types, or None."""
        try:
            return self._load_alone(signature, context)
        except _CACHE_FAULTS as fault:
            log.warning("%s is compiled anew, what is kept of it cannot be read: %r", self._name, fault)
            with contextlib.suppress(OSError):
                self._cache.flush()  # or it would be so at every start
            return None

    def _load_alone(self, signature: Any, context: Any) -> Any:
        """What is kept, without loading first all that Numba knows to compile: that takes five times as long."""
        try:
            rtsys.initialize(context)
            with self._cache._guard_against_spurious_io_errors():
                return self._cache._load_overload(signature, context)
        except (AttributeError, LookupError, NotImplementedError, TypeError):  # a Numba that needs it
            return self._cache.load_overload(signature, context)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keeps it, if the disk allows."""
        try:
            self._cache.save_overload(signature, result)
        except _CACHE_FAULTS as fault:
            log.warning("%s is compiled again at the next start: %s", self._name, fault)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # A division by zero gives infinity: the check that raises an exception for it keeps a loop from vectorising.
    "error_model": "numpy",
    # Sums may be taken in any order, which is what vectorising them means; NaN and infinity keep their meaning.
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of loops, written into each before it is compiled: called, it costs them a tenth of their time."""
    return numba.njit(inline="always", **_OPTIONS)(function)


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function, and keeps the result on disk where that can be done."""
    compiled: Any = numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no directory can be written
        compiled.enable_caching()
        compiled._cache = _Kept(compiled._cache, function.__name__)
    return compiled


def exp(x: Any) -> Any:
    """`e^x`, in loops only."""
    raise NotImplementedError("only compiled code calls this")


@overload(exp, jit_options={"error_model": "numpy", "fastmath": {"contract", "nsz"}})  # its order counts
def _exp(x: Any) -> Any:
    return _exp_float32 if x == numba.types.float32 else _exp_float64


def _exp_float64(x: Any) -> Any:
    return math.exp(x)


def _exp_float32(x: Any) -> Any:
    """`2^n e^r` with `|r| <= log(2) / 2`, in operations that vectorise; constant where |x| > 87.

    The polynomial has the least relative error of its degree, 1.1e-7; with roundings it is 4e-7.
    """
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(87.0) if x > np.float32(87.0) else x
    # Adding 1.5 * 2^23 rounds to a whole number, and leaves it in the low bits.
    shifted = x * np.float32(1.0 / math.log(2.0)) + np.float32(1.5 * 2.0**23)
    n = shifted - np.float32(1.5 * 2.0**23)
    r = x - n * np.float32(math.log(2.0))
    p = np.float32(0.041890114) + r * np.float32(0.0083125252)
    p = np.float32(0.16667114) + r * p
    p = np.float32(0.49999231) + r * p
    p = np.float32(1.0) + r + r * r * p
    power = np.int32((np.float32(shifted).view(np.int32) << 23) + 0x3F800000)
    return p * np.int32(power).view(np.float32)
