"""Recipes: the shipped YAML files that say what a task is best trained with.

    recipes/base.<algorithm>.yaml                     every task of an algorithm
    recipes/<backend>/default.<algorithm>.yaml        every task of a backend, if it is there
    recipes/<backend>/<task>.<algorithm>.yaml         one task, if it is there

Later ones are laid over earlier ones.
"""

from __future__ import annotations

from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "recipes"


def recipe_paths(task: str, backend: str, algo: str, root: Path = RECIPES) -> list[Path]:
    """Returns the recipes of a task that exist, least specific first."""
    name = task.removeprefix("gymnasium:").replace(":", "_").replace("/", "_")
    candidates = [
        root / f"base.{algo}.yaml",
        root / backend / f"default.{algo}.yaml",
        root / backend / f"{name}.{algo}.yaml",
    ]
    return [path for path in candidates if path.is_file()]
