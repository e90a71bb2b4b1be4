"""The scaling bench with processes of its own: figures that fit together, and nothing left."""

from __future__ import annotations

import multiprocessing

import pytest

from workers.bench import scale


@pytest.mark.covers("B1")
@pytest.mark.parametrize("collectors", [1, 2])
def test_figures_fit_together(collectors: int) -> None:
    report = scale.measure_scale(collectors, 0.5)
    assert report.collectors == collectors
    assert 0 < report.generations_s <= 1.1 / scale.STEP_S
    assert report.shards_s == pytest.approx(collectors * report.generations_s)
    assert report.reached == pytest.approx(report.generations_s * scale.STEP_S)
    slot_mb = report.mb_s / report.shards_s
    assert report.drain_ms_mb * slot_mb == pytest.approx(report.drain_us_shard / 1e3)
    assert multiprocessing.active_children() == []
    assert "generations/s" in scale.scale_text([report])
    assert scale.scale_data([report])[0]["collectors"] == collectors
