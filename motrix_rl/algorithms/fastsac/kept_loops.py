"""Where compiled loops are kept, and whether they are, without loading what compiles them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

_LOOPS = Path(__file__).parent / "loops"
_ALL = "all-kept"


def cache_directory() -> Path:
    """Where compiled loops are kept: a directory for each version of the text of the folder `loops`.

    In one for all versions, Numba would for a moment take what an earlier one has left for what another process
    has just compiled.
    """
    text = hashlib.sha256()
    for path in sorted(_LOOPS.glob("*.py")):
        text.update(path.read_bytes())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return caches / "motrix-rl" / f"loops-{text.hexdigest()[:16]}"


def note_that_all_are_kept() -> None:
    """Said after an update, for the next start: what one needs has been compiled, and kept if that was possible."""
    with contextlib.suppress(OSError):
        if any(cache_directory().rglob("*.nbc")):
            (cache_directory() / _ALL).touch()


def are_all_kept() -> bool:
    """Whether the next update is likely to find all of them: a guess that costs nothing but time where it is wrong."""
    return not os.environ.get("NUMBA_CACHE_DIR") and (cache_directory() / _ALL).exists()
