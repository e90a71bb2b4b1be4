"""The record of a run: `metrics.jsonl` and TensorBoard events."""

from motrix_rl.metrics.reader import read_metrics
from motrix_rl.metrics.writer import MetricsWriter

__all__ = ["MetricsWriter", "read_metrics"]
