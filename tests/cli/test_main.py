"""The table of verbs, help texts and exit codes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from motrix_rl import __version__
from motrix_rl.cli.arguments import SEEDS
from motrix_rl.cli.help import train_help
from motrix_rl.cli.main import VERBS, main
from motrix_rl.config import load_config
from motrix_rl.config.describe import option_table
from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.tasks.registry import task_names, task_options_model

ROOT = Path(__file__).parents[2]


def test_without_a_verb_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    for name, verb in VERBS.items():
        assert f"  {name} " in shown.err
        assert verb.summary in shown.err
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == shown.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"motrix-rl {__version__}\n"


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("verb", "hint"), [("trian", "train"), ("evaluate", "eval"), ("log", "logs"), ("task=x", "train")]
)
def test_unknown_verbs_get_the_nearest(verb: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert f"did you mean '{hint}'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_there_and_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(VERBS[verb].module).main)
    try:
        code = main([verb, "--help"])
    except SystemExit as end:  # argparse ends the process itself after its help
        code = end.code
    assert code == 0
    assert f"usage: motrix-rl {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (UsageError("no such thing"), 2, "error: no such thing\n"),
        (MotrixError("disk full"), 1, "error: disk full\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_a_line_and_an_exit_code(
    raised: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(words: list[str], program: str) -> int:
        raise raised

    monkeypatch.setitem(sys.modules, VERBS["doctor"].module, types.SimpleNamespace(main=fail))
    assert main(["doctor"]) == code
    assert capsys.readouterr().err == line


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str], program: str) -> int:
        raise RuntimeError("ours")

    monkeypatch.setitem(sys.modules, VERBS["doctor"].module, types.SimpleNamespace(main=fail))
    with pytest.raises(RuntimeError, match="ours"):
        main(["doctor"])


@pytest.mark.parametrize("task", task_names())
def test_help_shows_every_option_with_its_description(task: str) -> None:
    text = train_help([f"task={task}/mujoco.fastsac"], "train.py")
    flowing = " ".join(text.split())
    table = option_table(task_options_model(task, "mujoco"))
    for option in table.options.values():
        assert f"  {option.key} = " in text
        assert option.description
        assert option.description in flowing
        assert option.kind in text
    assert max(len(line) for line in text.splitlines()) <= 140


@pytest.mark.covers("U1")
@pytest.mark.parametrize("verb", ["eval", "play"])
@pytest.mark.parametrize("seed", ["-5", "4294967296", "1.5"])
def test_a_seed_that_is_none_is_one_line(verb: str, seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "latest", "--seed", seed]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"error: motrix-rl {verb}: argument --seed: expected a whole number of 0 to 4294967295, got '{seed}'\n"
    )


def test_the_seeds_of_flags_are_those_of_the_option() -> None:
    assert load_config([f"seed={SEEDS - 1}"]).seed == SEEDS - 1
    with pytest.raises(UsageError, match="seed"):
        load_config([f"seed={SEEDS}"])


def test_print_config_shows_what_the_words_lead_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--print-config", "task=hopper/mujoco.fastsac", "num_envs=7"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["task"] == "hopper/mujoco.fastsac"
    assert shown["num_envs"] == 7
    assert set(shown["algo"]) == {"agent", "trainer"}


def test_train_hands_the_validated_configuration_to_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run_training(config: object) -> int:
        seen.append(config)
        return 17

    monkeypatch.setitem(sys.modules, "workers.training", types.SimpleNamespace(run_training=run_training))
    assert main(["train", "num_envs=8"]) == 17
    assert seen[0].num_envs == 8


def test_plan_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "num_envs=64"]) == 0
    text = capsys.readouterr().out
    assert "64 environments" in text
    assert main(["plan", "num_envs=64", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [collector["num_envs"] for collector in plan["collectors"]] == [64]


def test_plan_of_another_machine(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "this.json"
    assert main(["doctor", "--save-machine", str(path)]) in (0, 1)
    assert str(path) in capsys.readouterr().out
    assert main(["plan", "--json", "--machine", str(path)]) == 0
    described = json.loads(capsys.readouterr().out)
    assert main(["plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == described


@pytest.mark.covers("T3")
def test_a_request_that_no_layout_serves_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["num_envs=33", "algo.trainer.async_options.num_collectors=2"]
    for verb in ("plan", "train"):
        assert main([verb, *words]) == 2
        line = capsys.readouterr().err
        assert line.startswith("error: ")
        assert len(line.splitlines()) == 1


@pytest.mark.covers("U1")
@pytest.mark.parametrize("words", [["--help"], ["--print-config"]])
def test_a_full_disk_behind_the_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: No space left on device"]


@pytest.mark.covers("U1")
@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault_of_ours(closed: str) -> None:
    command = f"exec '{sys.executable}' '{ROOT / 'train.py'}' --print-config {closed}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 0
    assert done.stderr == ""
