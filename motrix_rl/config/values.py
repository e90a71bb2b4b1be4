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

    yaml_implicit_resolvers: typing.ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|none|None|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def parse_yaml(text: str) -> Any:
    """Parses one YAML document.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


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
    if not stripped:
        raise UsageError(f"{key}= has no value; write {key}=null for none")
    kinds = alternatives(annotation)
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
