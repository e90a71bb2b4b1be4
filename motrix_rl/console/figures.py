"""Numbers as a person reads them; every function answers `-` for what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping


def number(value: float | None, digits: int = 4) -> str:
    """A value to about `digits` significant digits: `812.3`, `0.0123`, `1.2e-07`."""
    if value is None or not math.isfinite(value):
        return "-" if value is None else str(value)
    size = abs(value)
    if size != 0 and (size < 1e-4 or size >= 1e7):
        return f"{value:.{max(digits - 3, 1)}e}"
    whole = 0 if size < 1 else int(math.log10(size)) + 1
    text = f"{value:.{max(digits - whole, 0)}f}"
    return text if float(text) != 0 or value == 0 else f"{value:.{max(digits - 3, 1)}e}"


def count(value: float | None) -> str:
    """A count: `12,345` up to a million, then `1.23M`, `4.56G`."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < 999_999.5:
        return f"{value:,.0f}"
    for unit, size in (("M", 1e6), ("G", 1e9)):
        if abs(value) < 999.995 * size:
            return f"{value / size:.2f}{unit}"
    return f"{value / 1e12:,.2f}T"


def rate(value: float | None) -> str:
    """A rate a second: `5,432/s`, `12.3/s`."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{count(value) if abs(value) >= 100 else number(value, 3)}/s"


def duration(seconds: float | None) -> str:
    """A time: `7s`, `3m12s`, `2h05m`, `4d03h`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def percent(share: float | None) -> str:
    """A share of 1 in percent: `37%`."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.0f}%"


def budget(shares: Mapping[str, float]) -> list[str]:
    """A time budget as words: `act 12%`, `step 70%`, `wait 18%`."""
    return [f"{name} {percent(share)}" for name, share in shares.items()]
