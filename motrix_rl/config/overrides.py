"""`key=value` words of the command line, before anybody has looked at what they mean."""

from __future__ import annotations

from collections.abc import Sequence

from motrix_rl.config.describe import OptionTable
from motrix_rl.config.suggest import check_key, nearest_key
from motrix_rl.errors import UsageError, did_you_mean


def split_overrides(words: Sequence[str], flags: Sequence[str], table: OptionTable) -> dict[str, str]:
    """Splits words into keys and the text behind the first `=`.

    Args:
        words: what stands on the command line, without the flags that were understood.
        flags: names of the flags that exist, for the message about one that does not.
        table: the options that exist, likewise.

    Returns:
        Text by key, in the order given.

    Raises:
        UsageError: a word without `=`, an unknown flag, or a key that is given twice.
    """
    texts: dict[str, str] = {}
    for word in words:
        if word.startswith("-"):
            raise UsageError(_about_flag(word, flags, table))
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals:
            raise UsageError(_about_bare_word(word, table))
        if not key:
            raise UsageError(f"'{word}' has no option before the '='; write key=value")
        if key in texts:
            raise UsageError(f"{key} is given twice ({key}={texts[key]} and {key}={text}); keep one of them")
        texts[key] = text
    return texts


def check_keys(keys: Sequence[str], table: OptionTable) -> None:
    """Refuses keys that do not exist, and a mapping together with a key inside it.

    Raises:
        UsageError: see `check_key`.
    """
    for key in keys:
        check_key(key, table)
        above = next((other for other in keys if key.startswith(f"{other}.")), None)
        if above is not None:
            raise UsageError(
                f"{above} and {key} are both given, and one contains the other; keep one of them"
            )


def _about_flag(word: str, flags: Sequence[str], table: OptionTable) -> str:
    name, equals, text = word.lstrip("-").partition("=")
    key = nearest_key(name, table)
    if key is not None and (equals or key.rsplit(".", 1)[-1] == name.replace("-", "_")):
        return f"options are written without dashes; did you mean '{key}={text or '...'}'?"
    return f"{word} is not a flag{did_you_mean(word, flags)}"


def _about_bare_word(word: str, table: OptionTable) -> str:
    if "/" in word:
        return f"'{word}' is not key=value; did you mean 'task={word}'?"
    key = nearest_key(word, table)
    if key is None:
        return f"'{word}' is not key=value; --help lists all options"
    return f"'{word}' is not key=value; did you mean '{key}=...'?"
