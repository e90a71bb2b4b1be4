from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.console import figures as fig


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (812.34, "812.3"), (0.0123, "0.0123"), (0.0, "0.0000"), (1.2e-7, "1.2e-07"),
     (-12.3, "-12.30"), (123456.7, "123457"), (3.2e9, "3.2e+09"), (math.nan, "nan")],
)  # fmt: skip
def test_number(value: float | None, text: str) -> None:
    assert fig.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345, "12,345"), (999_999, "999,999"), (999_999.9, "1.00M"), (1_234_567, "1.23M"),
     (999_990_000, "999.99M"), (4.56e9, "4.56G"), (1.5e13, "15.00T"), (None, "-")],
)  # fmt: skip
def test_count(value: float | None, text: str) -> None:
    assert fig.count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-1, "-"), (0.2, "0s"), (59.4, "59s"), (59.6, "1m00s"), (192, "3m12s"), (3599.6, "1h00m"),
     (7500, "2h05m"), (86400 * 4 + 3 * 3600, "4d03h"), (math.inf, "-")],
)  # fmt: skip
def test_duration(seconds: float | None, text: str) -> None:
    assert fig.duration(seconds) == text


def test_rate_and_shares() -> None:
    assert fig.rate(5432.1) == "5,432/s"
    assert fig.rate(12.345) == "12.3/s"
    assert fig.rate(None) == "-"
    assert fig.budget({"act": 0.126, "wait": 0.0}) == ["act 13%", "wait 0%"]


@given(st.floats())
def test_any_number_is_short_and_close(value: float) -> None:
    text = fig.number(value)
    assert len(text) <= 12
    if abs(value) < 1e300:
        assert math.isclose(float(text), value, rel_tol=0.06, abs_tol=1e-300)
    if abs(value) < 1e15:
        assert len(fig.count(value)) <= 9
