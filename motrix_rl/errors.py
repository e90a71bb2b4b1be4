"""The exception family of `motrix_rl`, and the search for what a user may have meant."""

from __future__ import annotations

import re
from collections.abc import Iterable


class MotrixError(Exception):
    """Base of every error that this package raises on purpose. Its message is for a person."""


class UsageError(MotrixError):
    """What was asked for does not exist or cannot work; nothing was started.

    The message is one line that says what is wrong and names the nearest valid thing. The command line
    prints it without a traceback and ends with exit code 2. What the user wrote is quoted in it, so line
    breaks and control characters are shown escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
        )


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Returns the choice that `name` was most likely meant to be, or None where nothing is close.

    Upper and lower case, and `-` against `_`, do not count as differences. A choice that begins with `name`
    (or the reverse) is close even where much is missing, so that `cartpole` finds `cartpole-swingup`.

    Args:
        name: what the user wrote.
        choices: the valid names.

    Returns:
        One of `choices`, as it is spelt there. Equal candidates: the first one in `choices`.
    """
    wanted = _fold(name)
    if not wanted:
        return None
    best: str | None = None
    best_score = 0.0
    for choice in choices:
        score = _similarity(wanted, _fold(choice))
        if score > best_score:
            best, best_score = choice, score
    # 0.55 keeps two swapped letters in a four-letter word and drops unrelated words of like length.
    return best if best_score >= 0.55 else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"`, or `"; valid: a, b"` where nothing is close and the list is short."""
    listed = list(choices)
    found = nearest(name, listed)
    if found is not None:
        return f"; did you mean '{found}'?"
    if 0 < len(listed) <= 12:
        return f"; valid: {', '.join(listed)}"
    return ""


def _fold(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _similarity(wanted: str, choice: str) -> float:
    """Returns how alike two folded names are: 2 equal, 1 - edits/length, with credit for parts and order."""
    if wanted == choice:
        return 2.0
    score = _alike(wanted, choice)
    shorter, longer = sorted((wanted, choice), key=len)
    whole_words = longer.split("_")
    if len(shorter) >= 3 and (
        longer.startswith(shorter) or longer.endswith(shorter) or shorter in whole_words
    ):
        score = max(score, 0.6 + 0.2 * len(shorter) / len(longer))
    # The same words in another order: `swingup_cartpole`.
    return max(score, 0.9 * _alike(_sorted_words(wanted), _sorted_words(choice)))


def _sorted_words(name: str) -> str:
    return "_".join(sorted(re.split(r"[_.:/]", name)))


def _alike(first: str, second: str) -> float:
    return 1.0 - _edits(first, second) / max(len(first), len(second))


def _edits(first: str, second: str) -> int:
    """Returns the optimal string alignment distance: insert, delete, replace, swap two neighbours."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, start=1):
        before, previous, row = row, before, [i]
        for j, right in enumerate(second, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == second[j - 2] and first[i - 2] == right:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
    return row[-1]
