"""The schema as a flat table of options: for `--help`, for suggestions, and for parsing overrides."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from motrix_rl.config.schema import RootConfig
from motrix_rl.config.values import alternatives


@dataclass(frozen=True)
class Option:
    """One option: a leaf of the schema."""

    key: str
    """Dotted path, such as `algo.agent.gamma`."""
    annotation: Any
    """Its type annotation."""
    default: Any
    """The schema's default (recipes may say otherwise)."""
    description: str
    """What it does, with its unit."""
    bounds: str
    """Bounds such as `>= 1`, or the empty string."""

    @property
    def kind(self) -> str:
        """What may be written after the `=`, in words."""
        return " | ".join(_kind_name(part) for part in alternatives(self.annotation))

    @property
    def is_mapping(self) -> bool:
        """Whether any key may stand below this one."""
        return any(typing.get_origin(part) is dict or part is dict for part in alternatives(self.annotation))


@dataclass(frozen=True)
class OptionTable:
    """All options and groups, in the schema's order."""

    options: dict[str, Option] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    """Dotted path of a group -> its description."""

    def children(self, group: str) -> list[str]:
        """Names directly below `group` (the empty string is the root), options first."""
        prefix = f"{group}." if group else ""
        names = [key[len(prefix) :] for key in (*self.options, *self.groups) if key.startswith(prefix)]
        return [name for name in names if name and "." not in name]


def option_table(env_model: type[BaseModel] | None = None) -> OptionTable:
    """Walks the schema.

    Args:
        env_model: the task's own options, which stand under `env`; None where no task is chosen, and then any
            name is accepted there.
    """
    table = OptionTable()
    _walk(RootConfig, "", table, env_model)
    return table


def _walk(model: type[BaseModel], prefix: str, table: OptionTable, env_model: type[BaseModel] | None) -> None:
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        group = env_model if key == "env" else _as_model(info.annotation)
        description = " ".join((info.description or "").split())
        if group is not None:
            table.groups[key] = description
            _walk(group, f"{key}.", table, env_model)
            continue
        default = info.get_default(call_default_factory=True, validated_data={})
        table.options[key] = Option(key, info.annotation, default, description, _bounds(info))


def _as_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _bounds(info: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    parts = [
        f"{sign} {getattr(constraint, name)}"
        for constraint in info.metadata
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    ]
    return " and ".join(parts)


def _kind_name(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return " | ".join(str(choice) for choice in typing.get_args(annotation))
    if origin is list or origin is tuple:
        return "list"
    if origin is dict or annotation is dict:
        return "mapping"
    if annotation is type(None):
        return "null"
    if annotation is bool:
        return "true | false"
    return getattr(annotation, "__name__", str(annotation))
