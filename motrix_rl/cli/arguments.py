"""Flags of the verbs: argparse, with one-line answers that name the nearest flag."""

from __future__ import annotations

import argparse
from typing import NoReturn

from motrix_rl.errors import UsageError, did_you_mean

#: Seeds there are, as of the option `seed=`.
SEEDS = 2**32


class Arguments(argparse.ArgumentParser):
    """An ArgumentParser that raises `UsageError` where argparse prints its usage and exits."""

    def __init__(self, program: str, description: str) -> None:
        # Abbreviated flags would change their meaning whenever a new flag is added.
        super().__init__(prog=program, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises:
        UsageError: always; names the nearest flag where one is unknown.
        """
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            word = unknown.split()[0]
            hint = did_you_mean(word.partition("=")[0], self.flags()) if word.startswith("-") else ""
            raise UsageError(f"{word} is not understood by {self.prog}{hint or f'; see {self.prog} --help'}")
        raise UsageError(f"{self.prog}: {message}")

    def flags(self) -> list[str]:
        """Names of all flags, such as `--json`."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


def positive_int(text: str) -> int:
    """An argparse type: a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _whole_number(text, 1, None, "at least 1")


def seed(text: str) -> int:
    """An argparse type: what the option `seed=` takes.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _whole_number(text, 0, SEEDS, f"0 to {SEEDS - 1}")


def _whole_number(text: str, low: int, end: int | None, bounds: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low or (end is not None and value >= end):
        raise argparse.ArgumentTypeError(f"expected a whole number of {bounds}, got '{text}'")
    return value
