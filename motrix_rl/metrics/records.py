"""Every place that a run's records go to, behind one `write`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from motrix_rl.extras import require
from motrix_rl.metrics.wandb import FINISH_S, WandbWriter, default_name
from motrix_rl.metrics.writer import MetricsWriter

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig
    from motrix_rl.runs import RunDirectory


class RecordWriter(Protocol):
    """Takes records until it is closed; never raises for what its far end does."""

    def write(self, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Records:
    """Writes each record everywhere."""

    def __init__(self, writers: list[RecordWriter]) -> None:
        self._writers = writers

    def write(self, record: Mapping[str, Any]) -> None:
        """One record; plain data, nested as you like."""
        for writer in self._writers:
            writer.write(record)

    def close(self) -> None:
        """Closes all; the files first, since they are complete whatever becomes of the rest."""
        for writer in self._writers:
            writer.close()


def check_records(config: RootConfig) -> None:
    """Refuses a destination that cannot work on this machine, before anything is started.

    Raises:
        UsageError: the package that it needs is not installed.
    """
    if config.logging.wandb != "off":
        require(["wandb"], "wandb", f"logging.wandb={config.logging.wandb}")


def open_records(
    config: RootConfig, directory: RunDirectory, on_error: Callable[[str], None], *, elsewhere: bool = True
) -> Records:
    """Opens what the configuration asks for: `metrics.jsonl` always, TensorBoard, wandb.

    Args:
        config: the resolved configuration.
        directory: the run directory.
        on_error: called with one line when something is not recorded.
        elsewhere: False keeps to the files; of a run on several machines one sends its records elsewhere.
    """
    events = directory.tensorboard if config.logging.tensorboard else None
    writers: list[RecordWriter] = [MetricsWriter(directory.metrics_path, events, on_error=on_error)]
    if elsewhere and config.logging.wandb != "off":
        writers.append(
            WandbWriter(
                directory.path,
                directory.log_path("wandb"),
                mode=config.logging.wandb,
                name=default_name(directory.path),
                config=config.model_dump(mode="json"),
                on_error=on_error,
                finish_s=min(FINISH_S, config.algo.trainer.async_options.shutdown_timeout_s),
            )
        )
    return Records(writers)
