"""The schema itself: complete, described, read by somebody; recipes that fit it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motrix_rl.config import AsyncOptions, load_config
from motrix_rl.config.describe import option_table
from motrix_rl.config.recipes import RECIPES, recipe_paths
from motrix_rl.config.suggest import check_key
from motrix_rl.config.values import read_yaml
from motrix_rl.envs.options import EnvOptions, GymnasiumOptions
from motrix_rl.errors import UsageError
from motrix_rl.tasks.registry import STANDARD_TASKS, task_options_model

ROOT = Path(__file__).resolve().parents[2]
#: The names that users of asynchronous trainers know; the contract of the command line.
ASYNC_NAMES = [
    "num_collectors",
    "num_learners",
    "learner_devices",
    "cpus_per_collector",
    "collector_cpu_cores",
    "learner_cpu_cores",
    "collector_inference_device",
    "collector_compile",
    "collector_amp",
    "collector_amp_dtype",
    "ring_capacity",
    "transition_ipc",
    "weight_ipc",
    "weight_ipc_min_bytes",
    "utd_mode",
    "weight_publish_interval",
    "weight_poll_interval",
    "max_ingest_per_iter",
    "boot_timeout_s",
    "shutdown_timeout_s",
    "heartbeat_timeout_s",
    "max_collector_restarts",
    "max_learner_restarts",
]
#: What the machine can decide is null, and decided by the resolver.
DECIDED = [
    "num_collectors",
    "num_learners",
    "learner_devices",
    "cpus_per_collector",
    "collector_cpu_cores",
    "learner_cpu_cores",
    "collector_inference_device",
]


def test_async_options_have_the_known_names() -> None:
    assert list(AsyncOptions.model_fields) == ASYNC_NAMES
    assert [name for name, info in AsyncOptions.model_fields.items() if info.default is None] == DECIDED


def test_every_option_and_group_says_what_it_is() -> None:
    table = option_table(EnvOptions)
    for key, text in [
        *table.groups.items(),
        *((key, option.description) for key, option in table.options.items()),
    ]:
        assert len(text) >= 8, key
    for key, option in table.options.items():
        if key.endswith("_s"):
            assert "econds" in option.description, key
        if key.endswith("_bytes"):
            assert "bytes" in option.description, key


def _sources() -> str:
    """All code outside the configuration, which would find every name in itself."""
    files = [
        path
        for floor in ("topology", "transport", "motrix_rl", "workers")
        for path in (ROOT / floor).rglob("*.py")
        if "config" not in path.parts and path.name != "config.py"
    ]
    return "\n".join(path.read_text() for path in files)


def test_every_option_is_read_by_somebody() -> None:
    text = _sources()
    names = [key.rsplit(".", 1)[-1] for key in option_table(EnvOptions).options]
    unread = [name for name in names if not re.search(rf"\.{name}\b", text)]
    assert sorted(unread) == [
        "collector_amp",
        "collector_amp_dtype",
        "collector_compile",
    ]


@pytest.mark.parametrize("word", ["collector_amp=true", "collector_compile=true"])
def test_what_nobody_reads_yet_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not available yet"):
        load_config([f"algo.trainer.async_options.{word}"])


def _recipes() -> list[Path]:
    return sorted(RECIPES.rglob("*.yaml"))


@pytest.mark.parametrize("path", _recipes(), ids=lambda path: str(path.relative_to(RECIPES)))
def test_recipes_name_only_options_that_exist(path: Path) -> None:
    where = path.relative_to(RECIPES)
    model = EnvOptions
    if where.parts[0] == "gymnasium":
        model = GymnasiumOptions
    elif where.parts[0] == "mujoco" and not path.name.startswith("default."):
        model = task_options_model(path.name.removesuffix(".fastsac.yaml"), "mujoco")
    table = option_table(model)

    def walk(content: dict, prefix: str) -> None:
        for name, value in content.items():
            if isinstance(value, dict) and f"{prefix}{name}" in table.groups:
                walk(value, f"{prefix}{name}.")
            else:
                check_key(f"{prefix}{name}", table)

    walk(read_yaml(path), "")


@pytest.mark.parametrize("task", STANDARD_TASKS)
def test_every_standard_task_has_recipes_that_load(task: str) -> None:
    assert recipe_paths(task, "mujoco", "fastsac")[0].name == "base.fastsac.yaml"
    agent = load_config([f"task={task}/mujoco.fastsac"]).algo.agent
    # An update of more samples than were collected before the first one would only repeat them.
    assert agent.batch_size <= agent.learning_starts


@pytest.mark.parametrize("task", ["cartpole-swingup", "halfcheetah", "hopper", "walker2d"])
def test_tuned_tasks_have_a_recipe_of_their_own(task: str) -> None:
    assert recipe_paths(task, "mujoco", "fastsac")[-1].name == f"{task}.fastsac.yaml"


def test_any_gymnasium_environment_has_one() -> None:
    names = [path.name for path in recipe_paths("gymnasium:Some-v0", "gymnasium", "fastsac")]
    assert names == ["base.fastsac.yaml", "default.fastsac.yaml"]


def test_later_recipes_win(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("base.a.yaml", "b/default.a.yaml", "b/m_E-v0.a.yaml", "b/other.a.yaml"):
        (tmp_path / name).write_text("")
    found = recipe_paths("gymnasium:m:E-v0", "b", "a", tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "base.a.yaml",
        "b/default.a.yaml",
        "b/m_E-v0.a.yaml",
    ]
