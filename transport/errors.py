"""The transport floor's exception family."""

from __future__ import annotations


class TransportError(Exception):
    """A channel between processes cannot do what was asked; the message names it and the next step."""
