"""From words to a configuration: layers, overrides, resumed runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from motrix_rl.config import DEFAULT_TASK, RootConfig, dump_config, load_config, load_saved
from motrix_rl.errors import UsageError
from motrix_rl.runs import RunDirectory
from motrix_rl.tasks.registry import task_names

TASKS = [f"{name}/mujoco.fastsac" for name in task_names()] + ["gymnasium:Pendulum-v1/gymnasium.fastsac"]


def test_without_words_it_is_the_default_task_with_its_recipe() -> None:
    config = load_config([])
    assert config.task == DEFAULT_TASK
    assert config.algo.agent.actor_hidden_dim == 128  # the task's own recipe, over the base's 256
    assert config.algo.agent.num_atoms == 51
    assert config.env["max_episode_steps"] == 1000  # the task's options are there with their defaults


def test_overrides_are_laid_over_recipes() -> None:
    config = load_config(
        [
            "task=halfcheetah/mujoco.fastsac",
            "num_envs=64",
            "algo.agent.gamma=0.9",
            "algo.agent.actor_learning_rate=1e-3",
            "algo.agent.buffer_size=2e5",
            "algo.trainer.async_options.learner_cpu_cores=1:30",
            "algo.trainer.async_options.transition_ipc=off",
            "algo.agent.target_entropy_std=null",
            "logging.tensorboard=false",
            "env.max_episode_steps=7",
            "run_dir=007",
        ]
    )
    assert config.num_envs == 64
    assert config.algo.agent.gamma == 0.9
    assert config.algo.agent.actor_learning_rate == 1e-3
    assert config.algo.agent.buffer_size == 200_000
    assert config.algo.agent.target_entropy_std is None
    assert config.algo.trainer.async_options.learner_cpu_cores == "1:30"
    assert config.algo.trainer.async_options.transition_ipc == "off"
    assert config.logging.tensorboard is False
    assert config.env["max_episode_steps"] == 7
    assert config.run_dir == "007"


def test_gymnasium_environments_are_named_without_quotes() -> None:
    config = load_config(["task=gymnasium:Pendulum-v1/gymnasium.fastsac", "env.kwargs.g=9.8"])
    assert config.task == "gymnasium:Pendulum-v1/gymnasium.fastsac"
    assert config.env["kwargs"] == {"g": 9.8}
    whole = load_config(["task=gymnasium:Pendulum-v1/gymnasium.fastsac", "env.kwargs={g: 9.8}"])
    assert whole == config


def test_motrix_is_mujoco_and_says_so() -> None:
    notes: list[str] = []
    config = load_config(["task=hopper/motrix.fastsac"], on_note=notes.append)
    assert config.task == "hopper/mujoco.fastsac"
    assert len(notes) == 1
    assert "mujoco" in notes[0]


@pytest.mark.parametrize("task", TASKS)
def test_what_is_printed_is_read_back_as_the_same(task: str, tmp_path: Path) -> None:
    config = load_config([f"task={task}", "algo.trainer.async_options.weight_ipc=on", "seed=5"])
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    assert load_saved(path) == config
    # A reader that follows YAML 1.1, as most do, must not see a boolean in `on`.
    assert yaml.safe_load(path.read_text())["algo"]["trainer"]["async_options"]["weight_ipc"] == "on"


def test_a_saved_configuration_with_an_unknown_name_is_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(load_config([])).replace("gamma:", "gama:"))
    with pytest.raises(UsageError, match=r"config\.yaml: algo\.agent\.gama.*'algo\.agent\.gamma'"):
        load_saved(path)


@pytest.mark.parametrize("content", ["", "{}\n", "seed: 1\n", "task:\n"])
def test_a_saved_configuration_that_was_emptied_is_not_one_of_defaults(content: str, tmp_path: Path) -> None:
    run = _run_of(load_config([]), tmp_path, "a")
    run.config_path.write_text(content)
    told = r"config\.yaml is not the configuration of a run: it names no task"
    for read in (lambda: load_saved(run.config_path), lambda: load_config([f"resume={run.path}"])):
        with pytest.raises(UsageError, match=told):
            read()


def _run_of(config: RootConfig, root: Path, name: str, *, checkpoint: bool = True) -> RunDirectory:
    task, _, rest = config.task.rpartition("/")
    backend, algo = rest.split(".")
    run = RunDirectory.create(root, task, backend, algo, root / name)
    run.config_path.write_text(dump_config(config))
    if checkpoint:
        step = run.checkpoints / "step_000000010"
        step.mkdir()
        (step / "manifest.json").write_text(json.dumps({}))
    return run


def test_a_resume_takes_over_the_runs_configuration(tmp_path: Path) -> None:
    saved = load_config(["task=hopper/mujoco.fastsac", "num_envs=48", "algo.agent.gamma=0.95", "run_dir=old"])
    run = _run_of(saved, tmp_path, "a")
    for reference in (run.path, run.checkpoints / "step_000000010"):
        config = load_config([f"resume={reference}", "algo.agent.gamma=0.9"])
        assert config.task == saved.task
        assert config.num_envs == 48
        assert config.algo.agent.gamma == 0.9
        assert config.run_dir is None
        assert config.resume == os.fspath(reference)


def test_resume_auto_takes_over_the_newest_run_of_the_task(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    words = ["task=hopper/mujoco.fastsac", f"runs_root={root}"]
    assert load_config([*words, "resume=auto"]) == load_config([*words]).model_copy(update={"resume": "auto"})
    _run_of(load_config([*words, "num_envs=40"]), root, "with")
    _run_of(load_config([*words, "num_envs=41"]), root, "without", checkpoint=False)
    _run_of(load_config([f"runs_root={root}", "num_envs=42"]), root, "other-task")
    assert load_config([*words, "resume=auto"]).num_envs == 40


def test_resuming_another_task_is_refused(tmp_path: Path) -> None:
    run = _run_of(load_config(["task=hopper/mujoco.fastsac"]), tmp_path, "a")
    with pytest.raises(UsageError, match="is not the task of the run to resume, hopper/mujoco"):
        load_config([f"resume={run.path}", "task=halfcheetah/mujoco.fastsac"])


def test_a_run_without_its_configuration_cannot_be_resumed(tmp_path: Path) -> None:
    run = _run_of(load_config([]), tmp_path, "a")
    run.config_path.unlink()
    with pytest.raises(UsageError, match=r"config\.yaml is missing"):
        load_config([f"resume={run.path}"])
