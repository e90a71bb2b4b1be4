"""What is installed: version, data files, pinned versions, and contracts that forget no module."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import motrix_rl
from motrix_rl.cli.checks import NEEDED

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DISTRIBUTION = re.compile(r"^[A-Za-z0-9_.-]+")


def test_every_dependency_of_a_developer_is_pinned() -> None:
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    extras = PROJECT["project"]["optional-dependencies"]
    # `motrix-rl[a,b]` among the developer's dependencies means those of the extras a and b.
    own = [text for text in extras["dev"] if text.startswith("motrix-rl[")]
    parts = [name for text in own for name in text.split("[")[1].rstrip("]").split(",")]
    wanted = PROJECT["project"]["dependencies"] + [text for text in extras["dev"] if text not in own]
    wanted += [text for name in parts for text in extras[name]]
    names = {DISTRIBUTION.match(text).group().lower() for text in wanted}  # type: ignore[union-attr]
    assert names <= pinned


def test_doctor_asks_for_the_versions_that_are_required() -> None:
    required = dict(text.split(">=") for text in PROJECT["project"]["dependencies"])
    for package, oldest in NEEDED.items():
        assert required[package] == ".".join(str(part) for part in oldest)


def test_every_floor_contract_names_every_module() -> None:
    children = {
        f"motrix_rl.{path.stem}"
        for path in (ROOT / "motrix_rl").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (front,) = [contract for contract in contracts if "knows no process" in contract["name"]]
    assert set(front["source_modules"]) == children - {"motrix_rl.cli"}


def test_data_files_belong_to_packages_and_are_named_for_the_build() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    patterns = {text.lstrip("*") for text in PROJECT["tool"]["setuptools"]["package-data"]["*"]}
    floors = ("motrix_rl/", "topology/", "transport/", "workers/")
    for name in listed.stdout.splitlines():
        if name.startswith(floors) and not name.endswith(".py"):
            assert any(name.endswith(pattern) for pattern in patterns), name


def test_the_version_is_the_packages_own() -> None:
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "motrix_rl.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", motrix_rl.__version__)
    module, _, function = PROJECT["project"]["scripts"]["motrix-rl"].partition(":")
    assert importlib.util.find_spec(module) is not None
    assert function == "entry"
