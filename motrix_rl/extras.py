"""Packages that only some of the work needs: which are missing, and the command that installs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from motrix_rl.errors import UsageError


def missing(packages: Iterable[str]) -> list[str]:
    """Those of some packages that are not installed; none is imported."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def require(packages: Iterable[str], extra: str, what: str) -> None:
    """Refuses what needs packages that are not there.

    Args:
        packages: names to import.
        extra: the extra of this package that brings them.
        what: what needs them, to begin the sentence with.

    Raises:
        UsageError: one is missing; the line holds the command that installs it.
    """
    absent = missing(packages)
    if absent:
        names = [name.replace("_", "-") for name in absent]
        raise UsageError(
            f"{what} needs {' and '.join(names)}; install with: pip install {' '.join(names)}"
            f" (or the extra: motrix-rl[{extra}])"
        )
