"""Values as people write them on the command line and in recipes: YAML 1.2's plain scalars.

PyYAML follows YAML 1.1, in which `on` is true, `1:30` is 90 and `1e-3` is text. Options here are called
`on`, CPU lists are written `1:30`, and `1e-3` is a learning rate; so the rules for plain scalars are our own.
"""

from __future__ import annotations

import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import yaml

from motrix_rl.errors import UsageError


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core rules for plain scalars."""


# First characters -> (tag, pattern); a table of our own in place of the inherited YAML 1.1 rules.
_Loader.yaml_implicit_resolvers = {}
for _tag, _first, _pattern in (
    ("bool", "tTfF", r"true|True|false|False"),
    ("null", "~nN", r"~|null|Null|NULL|none|None"),
    ("null", ("",), r""),
    ("int", "-+0123456789", r"[-+]?(?:0|[1-9][0-9_]*)"),
    (
        "float",
        "-+.0123456789",
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def parse_yaml(text: str) -> Any:
    """Parses one YAML document.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, Loader=_Loader)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes what `parse_yaml` would not read back as text, such as `none` and `1e-3`."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    try:
        plain = parse_yaml(text) == text
    except yaml.YAMLError:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "'")


_Dumper.add_representer(str, _represent_text)


def dump_yaml(content: Any) -> str:
    """Plain data as YAML that `parse_yaml` reads back equal."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=110)


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a YAML file that holds a mapping.

    Raises:
        UsageError: not readable, not YAML, or not a mapping.
    """
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {_one_line(error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold `key: value` lines, not a {type(content).__name__}")
    return content


def parse_value(key: str, text: str, annotation: Any) -> Any:
    """Turns the text after `key=` into a value, knowing what kind of value the option takes.

    Text stays text where the option is a string or one of a list of names, so that `run_dir=007`,
    `transition_ipc=on` and `learner_cpu_cores=1:30` mean what they say. `null` is None where None is allowed.

    Args:
        key: the option, for messages.
        text: what stands after the `=`.
        annotation: the option's type annotation; `Any` where it is not known.

    Raises:
        UsageError: `text` is empty, or is not YAML.
    """
    stripped = text.strip()
    kinds = alternatives(annotation)
    if not stripped:
        hint = f"; write {key}=null for none" if type(None) in kinds else ""
        raise UsageError(f"{key}= has no value{hint}")
    if type(None) in kinds and stripped.lower() in ("null", "none", "~"):
        return None
    is_text = any(kind is str or typing.get_origin(kind) is Literal for kind in kinds)
    if is_text and stripped[0] not in "\"'[{":
        return stripped
    try:
        return parse_yaml(stripped)
    except yaml.YAMLError as error:
        raise UsageError(f"{key}={text}: not a valid value ({_one_line(error)})") from error


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the annotation alone: `int | None` gives `(int, NoneType)`."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if origin is typing.Union or origin is types.UnionType:
        return tuple(kind for part in typing.get_args(annotation) for kind in alternatives(part))
    return (annotation,)


def _one_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None or mark.line == 0 else f"line {mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
