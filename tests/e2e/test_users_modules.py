"""A training from a user's own folder, whose files have the names of our packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running import ROOT, options, word

#: The installed command, where the project is found as in an editable install: after all of `sys.path`.
COMMAND = f"""
import importlib.machinery, sys

class Editable:
    @staticmethod
    def find_spec(name, path, target=None):
        return importlib.machinery.PathFinder.find_spec(name, [{str(ROOT)!r}]) if path is None else None

sys.meta_path.append(Editable)

from motrix_rl.cli.main import entry

if __name__ == "__main__":
    entry()
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """`motrix-rl`, and a `folder` of a user to stand in."""
    path = tmp_path / "bin" / "motrix-rl"
    path.parent.mkdir()
    path.write_text(COMMAND)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("workers", "transport", "topology"):
        (folder / f"{name}.py").write_text("raise RuntimeError('the wrong file')\n")
    (folder / "own_helper.py").write_text("")
    (folder / "own_module.py").write_text("import own_helper\nfrom tests.e2e.tasks_e2e import Toy as Mine\n")
    return [sys.executable, str(path)]


@pytest.mark.covers("U1")
@pytest.mark.timeout(120)
def test_files_named_like_our_packages_hide_none_of_them(tmp_path: Path, command: list[str]) -> None:
    settings = options(task="own_module:Mine/python.fastsac", algo__trainer__num_learning_iterations=12)
    words = [word(key, value) for key, value in settings.items()]
    done = subprocess.run(
        [*command, "train", *words, "run_dir=run"],
        cwd=tmp_path / "folder",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout
    assert "finished: generation 12" in done.stdout


@pytest.mark.covers("U1")
def test_one_that_is_on_the_path_before_ours_is_one_line(tmp_path: Path, command: list[str]) -> None:
    folder = tmp_path / "folder"
    done = subprocess.run(
        [*command, "plan"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    line = f"error: {folder / 'topology.py'} hides a package of motrix_rl; "
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1
