"""The ring's speed next to a plain copy."""

from __future__ import annotations

import pytest

from transport.bench import ring_throughput


@pytest.mark.timeout(60)
def test_bench_reports_both_rates_and_leaves_nothing(nothing_left) -> None:
    result = ring_throughput(1 << 16, 0.1)
    assert abs(result["slot_bytes"] - (1 << 16)) < 400
    assert result["ratio"] == pytest.approx(result["ring_gb_s"] / result["copy_gb_s"])
    assert result["handover_ratio"] == pytest.approx(result["handover_gb_s"] / result["copy_gb_s"])
    assert 0 < result["latency_p50_us"] <= result["latency_p99_us"] <= result["latency_max_us"]
    assert result["slots"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_large_slots_move_at_the_rate_of_a_copy() -> None:
    """The ring's own cost; needs two idle cores, as the rate is one of two processes at once.

    The rate with rewritten slots is reported and not held to a bound: while ring and copies fit into a cache, the
    plain copy's bytes never leave their core and the ring's do, which is the processor's cost and not the ring's.
    """
    result = ring_throughput(4 << 20, 2.0)
    print(result)
    assert result["handover_ratio"] >= 0.7
