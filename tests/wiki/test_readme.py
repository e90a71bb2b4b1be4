"""The README's commands are taken at their word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from motrix_rl.cli.main import VERBS
from motrix_rl.config import load_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every command of the README's bash blocks, split into words, comments dropped."""
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def words_for_train() -> list[list[str]]:
    return [
        words[2:]
        for words in commands()
        if words[:2] == ["python", "train.py"]
        and not any("<" in word or word.startswith("[") for word in words)
    ]


@pytest.mark.covers("U4")
@pytest.mark.parametrize("words", words_for_train(), ids=" ".join)
def test_every_training_command_is_a_valid_one(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [word for word in words if not word.startswith("resume=runs/")]  # a run that only the reader has
    load_config(named)


@pytest.mark.covers("U4")
def test_every_verb_exists() -> None:
    used = {words[1] for words in commands() if words[0] == "motrix-rl"}
    assert used
    assert used <= set(VERBS)


@pytest.mark.covers("U4")
def test_the_two_commands_name_what_is_here() -> None:
    first, second = [words for words in commands() if words[0] == "python3"]
    for words in (first, second):
        assert words[:4] == ["python3", "-m", "venv", ".venv"]
        assert words[words.index("-c") + 1] == "constraints.txt"
    assert (ROOT / "constraints.txt").is_file()
    assert first[-2:] == [".venv/bin/python", "train.py"]
    assert second[-3:] == [".venv/bin/python", "-m", "pytest"]
