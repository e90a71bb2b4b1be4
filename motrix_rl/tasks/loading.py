"""Imports what a task name, an entry point or a `module:Class` refers to."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from motrix_rl.errors import UsageError, did_you_mean

ENTRY_POINT_GROUP = "motrix_rl.tasks"


def plugin_tasks() -> dict[str, EntryPoint]:
    """Returns the tasks that installed packages offer, by name; none of them is imported."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def load_object(reference: str) -> Any:
    """Imports `module:Name` and returns it. The working directory is searched too.

    Raises:
        UsageError: there is no such module or name.
    """
    module_name, _, name = reference.partition(":")
    module = import_module(module_name)
    if not hasattr(module, name):
        hint = did_you_mean(name, [n for n in vars(module) if not n.startswith("_")])
        raise UsageError(f"{module_name} has no {name}{hint}")
    return getattr(module, name)


def import_module(name: str) -> Any:
    """Imports a module; one in the working directory is found as well, as with `python script.py`.

    Raises:
        UsageError: there is no such module. What the module itself raises is passed on.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        # An installed command has its own folder on the path, not the one that the user stands in.
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"no module {name!r} (looked in the environment and in {here})") from error
        raise
