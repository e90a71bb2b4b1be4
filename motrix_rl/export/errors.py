"""What can go wrong with an export."""

from __future__ import annotations

from motrix_rl.errors import MotrixError


class ExportError(MotrixError):
    """A policy could not be written, or what was written does not compute what the policy computes."""
