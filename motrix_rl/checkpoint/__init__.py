"""Checkpoints that survive a kill at any moment. Imports torch only when a file is written or loaded."""

from motrix_rl.checkpoint.best import BestStore
from motrix_rl.checkpoint.errors import CheckpointError, CheckpointSaveError
from motrix_rl.checkpoint.store import CheckpointRef, CheckpointStore, load_file, open_checkpoint
from motrix_rl.checkpoint.tensors import write_object

__all__ = [
    "BestStore",
    "CheckpointError",
    "CheckpointRef",
    "CheckpointSaveError",
    "CheckpointStore",
    "load_file",
    "open_checkpoint",
    "write_object",
]
