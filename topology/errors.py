"""The error family of the topology floor: one clear line, with the user's next step in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class TopologyError(Exception):
    """Base of every error that this floor raises."""


class CpuListError(TopologyError, ValueError):
    """A CPU list such as ``0:5,7`` could not be read."""


class MachineError(TopologyError, ValueError):
    """A machine description could not be read, or this machine could not be understood."""


class RequestError(TopologyError, ValueError):
    """A request that no layout satisfies; refused before any process starts.

    Attributes:
        suggestions: option name to the nearest values that would work, nearest first.
    """

    def __init__(self, message: str, suggestions: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(message)
        self.suggestions: dict[str, list[int]] = {k: list(v) for k, v in (suggestions or {}).items()}
