"""Any figure as plain JSON data."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any


def to_plain(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """Turns nested data into what JSON has; NumPy scalars become numbers, NaN and infinities None.

    Args:
        value: The data.
        other: Turns what is none of that into something plain; an error when None.

    Raises:
        TypeError: Something is no plain data.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, other) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item, other) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a NumPy scalar or 0-d array
        return to_plain(value.item(), other)
    if other is not None:
        return other(value)
    raise TypeError(f"a figure cannot be a {type(value).__name__}")
