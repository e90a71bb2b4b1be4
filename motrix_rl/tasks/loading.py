"""Imports what a task name, an entry point or a `module:Class` refers to."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from motrix_rl.errors import UsageError, did_you_mean

ENTRY_POINT_GROUP = "motrix_rl.tasks"

#: The project's packages beside `motrix_rl`, which hold no tasks; plain names that a user's file may have as well.
NAMES_TAKEN = ("topology", "transport", "workers")


class DirectoryFinder:
    """Finds top-level modules in one directory, where nobody before it in `sys.meta_path` finds any.

    The directory could be appended to `sys.path` instead, but an editable install is found only after that:
    a `workers.py` there would hide our package. Nor does a spawned worker inherit a finder, as it does
    `sys.path` before it has imported anything of ours.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` describes it."""
        return PathFinder.find_spec(fullname, [self.directory], target) if path is None else None


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
        UsageError: there is no such module, or it has a name of ours. What the module itself raises is passed on.
    """
    if name.partition(".")[0] in NAMES_TAKEN:
        raise UsageError(
            f"module {name!r}: {name.partition('.')[0]!r} is a package of motrix_rl's own; give yours another name"
        )
    here = os.getcwd()
    _search(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"no module {name!r} (looked in the environment and in {here})") from error
        raise


def _search(here: str) -> None:
    """An installed command has its own folder on the path, not the one that the user stands in."""
    known = [finder.directory for finder in sys.meta_path if isinstance(finder, DirectoryFinder)]
    if here not in known and here not in sys.path and "" not in sys.path:
        sys.meta_path.append(DirectoryFinder(here))
