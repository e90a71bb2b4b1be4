"""One log a worker: what its Python logs and what its native code prints, with time and level."""

from motrix_rl.logs.pump import OutputPump, WorkerOutput
from motrix_rl.logs.read import follow, log_path, merge_logs, read_log, tail, worker_names
from motrix_rl.logs.worker import STACK_SIGNAL, setup_parent_logging, setup_worker_logging

__all__ = [
    "STACK_SIGNAL",
    "OutputPump",
    "WorkerOutput",
    "follow",
    "log_path",
    "merge_logs",
    "read_log",
    "setup_parent_logging",
    "setup_worker_logging",
    "tail",
    "worker_names",
]
