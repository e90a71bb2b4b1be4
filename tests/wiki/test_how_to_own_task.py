"""The page is followed word for word, in an empty directory, as a new user would."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "wiki" / "how-to-own-task.md").read_text()


def files_of(page: str) -> dict[str, str]:
    """Blocks that follow a file's name on a line of its own."""
    return dict(re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", page, flags=re.DOTALL))


def commands_of(page: str) -> list[str]:
    """Lines of the shell blocks."""
    return [
        line
        for block in re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty directory, and the installed command on the path."""
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "motrix-rl"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from motrix_rl.cli.main import entry\nif __name__ == '__main__':\n    entry()\n"
    )
    command.chmod(0o755)
    here = tmp_path / "mine"
    here.mkdir()
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=here, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    run.here = here  # type: ignore[attr-defined]
    return run


@pytest.mark.timeout(600)
def test_the_page_works_word_for_word(shell) -> None:
    files, commands = files_of(PAGE), commands_of(PAGE)
    assert list(files) == ["ball.xml", "ball_task.py", "pyproject.toml"]
    assert len(commands) == 3
    for name in ("ball.xml", "ball_task.py"):
        (shell.here / name).write_text(files[name])
    train, show_help, evaluate = commands
    assert "finished: generation 50" in shell(train)
    record = json.loads((shell.here / "first-run" / "run.json").read_text())
    assert record["outcome"] == "finished"
    assert record["updates"] > 0
    assert "env.goal = 1.0" in shell(show_help)
    assert "over 4 episodes of 100 steps" in shell(evaluate)
    exported = importlib.util.find_spec("onnx") is not None
    assert (shell.here / "first-run" / "policy.onnx").exists() == exported


def test_the_entry_point_gives_the_task_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(PAGE)
    for name in ("ball.xml", "ball_task.py"):
        (tmp_path / name).write_text(files[name])
    # What an installation would leave, from the page's own words.
    found = re.search(r'\[project\.entry-points\."([\w.]+)"\]\n(\w+) = "([\w:]+)"', files["pyproject.toml"])
    assert found is not None
    metadata = tmp_path / "ball_task-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ball-task\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[{found[1]}]\n{found[2]} = {found[3]}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    from motrix_rl.config import load_config
    from motrix_rl.tasks.registry import make_env, parse_task, task_names

    assert "ball" in task_names()
    config = load_config(["task=ball/mujoco.fastsac", "env.goal=0.5"])
    task = parse_task(config.task)
    env = make_env(task.task, task.backend, 3, seed=0, options=config.env)
    assert env.env_spec.obs_dim == 2
    env.close()


def test_the_package_of_the_page_is_valid() -> None:
    tomllib = pytest.importorskip("tomllib")
    package = tomllib.loads(files_of(PAGE)["pyproject.toml"])
    assert package["project"]["entry-points"]["motrix_rl.tasks"] == {"ball": "ball_task:Ball"}
    assert package["tool"]["setuptools"]["py-modules"] == ["ball_task"]
