"""What is wrong with a key or a value, in one line, with the nearest thing that is right."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from motrix_rl.config.describe import Option, OptionTable
from motrix_rl.config.values import alternatives
from motrix_rl.errors import UsageError, did_you_mean, nearest


def check_key(key: str, table: OptionTable) -> None:
    """Accepts the key of an option, and refuses everything else.

    Raises:
        UsageError: no such option, a group, or something below a single value; names the nearest option.
    """
    if key in table.options:
        return
    if key in table.groups:
        example = next(option for option in table.options if option.startswith(f"{key}."))
        raise UsageError(
            f"{key} is a group of options, not an option; set one of them, such as {example}=..."
        )
    for option in table.options.values():
        if key.startswith(f"{option.key}."):
            if option.is_mapping:
                return
            raise UsageError(
                f"{option.key} is a single option and has nothing below it; write {option.key}=..."
            )
    raise UsageError(f"{key} is not an option{_key_hint(key, table)}")


def nearest_key(key: str, table: OptionTable) -> str | None:
    """Returns the option or group that `key` was most likely meant to be.

    In this order: the same last name elsewhere in the tree (`num_collectors`,
    `algo.trainer.num_collectors`), then name by name from the root (`algo.agnet.gama`), then the nearest
    last name anywhere (`num_collector`).
    """
    everything = (*table.options, *table.groups)
    last = key.rsplit(".", 1)[-1]
    same_name = [option for option in everything if option.rsplit(".", 1)[-1] == last]
    if same_name:
        return same_name[0] if len(same_name) == 1 else (nearest(key, same_name) or same_name[0])
    corrected = _correct_by_name(key.split("."), table)
    if corrected is not None:
        return corrected
    by_last_name: dict[str, str] = {}
    for option in everything:
        by_last_name.setdefault(option.rsplit(".", 1)[-1], option)
    name = nearest(last, by_last_name)
    return by_last_name[name] if name is not None else nearest(key, everything)


def explain(error: ValidationError, table: OptionTable, given: Mapping[str, Any], prefix: str = "") -> str:
    """Turns pydantic's first complaint into one line about the option, as the user would write it.

    Args:
        error: what pydantic raised.
        table: the options.
        given: the values that were validated: flat, by dotted key.
        prefix: what stands before the locations in `error`: `"env."` for the task's own options.
    """
    details = error.errors(include_url=False)[0]
    option = _located(details, table, prefix)
    where = prefix + ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        return f"{where} is not an option{_key_hint(where, table)}"
    if option is None or details["type"] in ("value_error", "assertion_error"):
        text = details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return f"{where}: {text}" if where and where not in text else text
    return explain_value(option, given.get(option.key, details["input"]), details)


def explain_value(option: Option, value: Any, details: ErrorDetails | None = None) -> str:
    """Says why `value` cannot be had by `option`, and what can."""
    written = f"{option.key}={_written(value)}"
    choices = _choices(option)
    if choices and (found := nearest(_written(value), choices)) is not None:
        return f"{written} is not valid; did you mean '{found}'? (valid: {', '.join(choices)})"
    if details is not None and option.bounds and details["type"].startswith(("greater_than", "less_than")):
        return f"{written} is out of bounds; it must be {option.bounds}"
    expected = option.kind + (f", {option.bounds}" if option.bounds else "")
    return f"{written} is not valid; expected {expected}"


def _key_hint(key: str, table: OptionTable) -> str:
    found = nearest_key(key, table)
    if found is None:
        return did_you_mean(key, table.children("")) or "; --help lists all options"
    if key.startswith(f"{found}."):
        # Nothing in that group is close: what the user cannot know is what is there.
        return f"; {found} has: {', '.join(table.children(found))}"
    return f"; did you mean '{found}'?"


def _correct_by_name(parts: list[str], table: OptionTable) -> str | None:
    path = ""
    for part in parts:
        children = table.children(path)
        name = part if part in children else nearest(part, children)
        if name is None:
            return None
        path = f"{path}.{name}" if path else name
    return path if path in table.options or path in table.groups else None


def _located(details: ErrorDetails, table: OptionTable, prefix: str) -> Option | None:
    """Finds the option that an error is about; locations end in the names of union members, or in indices."""
    parts = [str(part) for part in details["loc"]]
    for end in range(len(parts), 0, -1):
        option = table.options.get(prefix + ".".join(parts[:end]))
        if option is not None:
            return option
    return None


def _choices(option: Option) -> list[str]:
    choices: list[str] = []
    for part in alternatives(option.annotation):
        if typing.get_origin(part) is Literal:
            choices += [str(choice) for choice in typing.get_args(part)]
        elif part is bool:
            choices += ["true", "false"]
        elif part is type(None):
            choices.append("null")
    return choices


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
