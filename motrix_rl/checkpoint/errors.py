"""What can go wrong with a checkpoint."""

from motrix_rl.errors import MotrixError


class CheckpointError(MotrixError):
    """A checkpoint cannot be used: damaged, edited, foreign or of an unknown format; the text says which."""


class CheckpointSaveError(MotrixError):
    """The disk refused a checkpoint. Nothing half-written stays, older checkpoints do, and a run goes on."""
