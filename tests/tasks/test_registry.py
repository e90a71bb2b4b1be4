"""Task names, their errors, options, and tasks of one's own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from motrix_rl.envs.base import StepBuffers
from motrix_rl.errors import UsageError
from motrix_rl.tasks import loading, registry
from motrix_rl.tasks.registry import (
    STANDARD_TASKS,
    env_spec,
    gymnasium_id,
    make_env,
    parse_task,
    task_names,
    task_options_model,
    validate_options,
)

OWN = "tests.envs.own_tasks"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("halfcheetah/mujoco.fastsac", ("halfcheetah", "mujoco", "fastsac")),
        ("gymnasium:Pendulum-v1/gymnasium.fastsac", ("gymnasium:Pendulum-v1", "gymnasium", "fastsac")),
        ("ale_py:ALE/Pong-v5/gymnasium.fastsac", ("ale_py:ALE/Pong-v5", "gymnasium", "fastsac")),
        ("my.pkg.file:Task/mujoco.fastsac", ("my.pkg.file:Task", "mujoco", "fastsac")),
    ],
)
def test_parse(text: str, parts: tuple[str, str, str]) -> None:
    ref = parse_task(text)
    assert (ref.task, ref.backend, ref.algo) == parts
    assert str(ref) == text
    assert ref.note is None


def test_motrix_means_mujoco_with_a_note() -> None:
    ref = parse_task("hopper/motrix.fastsac")
    assert ref.backend == "mujoco"
    assert ref.note is not None
    assert "mujoco" in ref.note


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("halfchetah/mujoco.fastsac", "did you mean 'halfcheetah'"),
        ("cartpole/mujoco.fastsac", "did you mean 'cartpole-swingup'"),
        ("xyzzy/mujoco.fastsac", "tasks?: ant, cartpole-swingup|valid: ant"),
        ("hopper/mujco.fastsac", "did you mean 'mujoco'"),
        ("hopper/mujoco.fastsak", "did you mean 'fastsac'"),
        ("hopper", "for instance hopper/mujoco.fastsac"),
        ("cartpol", "for instance cartpole-swingup/mujoco.fastsac"),
        ("x", "for instance halfcheetah/mujoco.fastsac; valid: ant, cartpole-swingup"),
        ("hopper/mujoco", "for instance hopper/mujoco.fastsac"),
        ("gymnasium:Pendulum-v1", "for instance gymnasium:Pendulum-v1/gymnasium.fastsac"),
        ("", "for instance"),
        ("hopper/gymnasium.fastsac", "hopper/mujoco.fastsac"),
        ("gymnasium:Pendulum-v1/mujoco.fastsac", "gymnasium:Pendulum-v1/gymnasium.fastsac"),
    ],
)
def test_what_is_misspelt_gets_one_line_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_task(text)
    assert "\n" not in str(raised.value)


@pytest.mark.covers("U1")
def test_names_and_options_are_checked_without_loading_a_simulator() -> None:
    code = (
        "import sys; from motrix_rl.tasks import registry as r; import motrix_rl.envs.spec\n"
        "for name in r.task_names():\n"
        "    r.parse_task(f'{name}/mujoco.fastsac'); r.validate_options(name, 'mujoco', {})\n"
        "r.task_options_model('gymnasium:Pendulum-v1', 'gymnasium')\n"
        "print([m for m in ('torch', 'mujoco', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_standard_task_has_a_class_and_described_options() -> None:
    assert set(STANDARD_TASKS) <= set(task_names())
    for name, definition in STANDARD_TASKS.items():
        model = task_options_model(name, "mujoco")
        assert all(field.description for field in model.model_fields.values()), name
        assert loading.load_object(definition.env_class).Options is model
        assert definition.summary
        assert env_spec(name, "mujoco").obs_dim > 0


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"healty_reward": 1}, "no option env.healty_reward; did you mean 'healthy_reward'"),
        ({"frame_skip": 0}, "env.frame_skip=0"),
        ({"healthy_z_range": [1]}, "env.healthy_z_range.1"),
        ({"reset_noise_scale": -1}, "env.reset_noise_scale=-1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validate_options("hopper", "mujoco", options)


def test_options_may_be_given_as_their_model() -> None:
    model = task_options_model("hopper", "mujoco")
    options = model(max_episode_steps=3)
    assert validate_options("hopper", "mujoco", options) is options
    assert env_spec("hopper", "mujoco", options).max_episode_steps == 3


def test_a_task_of_ones_own_in_one_file() -> None:
    task = f"{OWN}:Slider"
    assert parse_task(f"{task}/mujoco.fastsac").task == task
    assert set(task_options_model(task, "mujoco").model_fields) == {"max_episode_steps", "goal"}
    env = make_env(task, "mujoco", 3, seed=0, num_threads=2, options={"goal": 2.0})
    out = StepBuffers.allocate(env.env_spec, 3)
    env.reset_into(None, out.obs)
    assert (np.abs(out.obs[:, 0] + 2) < 0.1).all()
    for _ in range(300):
        env.step_into(np.full((3, 1), 2, np.float32), out)
    assert (out.obs[:, 0] > -2 + 0.1).all()


def test_a_task_of_ones_own_with_an_observation_for_the_critic() -> None:
    task, options = f"{OWN}:SliderWithCritic", {"max_episode_steps": 4}
    env = make_env(task, "mujoco", 2, seed=0, options=options)
    assert env.env_spec.critic_obs_dim == 3
    out = StepBuffers.allocate(env.env_spec, 2)
    assert out.critic_obs is not None
    assert out.final_critic_obs is not None
    env.reset_into(None, out.obs, out.critic_obs)
    for step in range(1, 5):
        assert env.step_into(np.full((2, 1), 1.5, np.float32), out) == (2 if step == 4 else 0)
        np.testing.assert_array_equal(out.critic_obs[:, :2], out.obs)
        assert (out.critic_obs[:, 2] == (0 if step == 4 else 1.5)).all()
    np.testing.assert_array_equal(out.final_critic_obs[:, :2], out.final_obs)
    assert (out.final_critic_obs[:, 2] == 1.5).all()
    env.step_into(np.full((2, 1), 0.5, np.float32), out)
    fresh = make_env(task, "mujoco", 2, seed=5, options=options)
    fresh.load_state_dict(env.state_dict())
    restored = StepBuffers.allocate(env.env_spec, 2)
    fresh.current_obs_into(restored.obs, restored.critic_obs)
    np.testing.assert_array_equal(restored.critic_obs, out.critic_obs)


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("task", "backend", "message"),
    [
        (f"{OWN}:Slidr", "mujoco", "did you mean 'Slider'"),
        (f"{OWN}:NotATask", "mujoco", "not a subclass"),
        (f"{OWN}:Slider", "python", "a task of the backend mujoco, not python"),
        ("no_such_package.file:Task", "mujoco", "no module 'no_such_package.file'"),
    ],
)
def test_faults_of_a_task_of_ones_own(task: str, backend: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_env(task, backend, 1, seed=0)


def test_an_import_error_inside_a_users_file_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_task_file.py").write_text("import something_not_installed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with pytest.raises(ModuleNotFoundError, match="something_not_installed"):
        make_env("broken_task_file:Task", "mujoco", 1, seed=0)


def test_a_file_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file_of_the_user.py").write_text(f"from {OWN} import Slider as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert env_spec("file_of_the_user:Mine", "mujoco").obs_dim == 2


def test_an_entry_point_adds_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("push-ball", f"{OWN}:Slider", loading.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "plugin_tasks", lambda: {"push-ball": point})
    assert "push-ball" in task_names()
    assert parse_task("push-ball/mujoco.fastsac").task == "push-ball"
    assert env_spec("push-ball", "mujoco", {"goal": 0}).obs_dim == 2
    with pytest.raises(UsageError, match="did you mean 'push-ball'"):
        parse_task("push-bal/mujoco.fastsac")


@pytest.mark.covers("E4", "U1")
@pytest.mark.parametrize(
    ("task", "gym_id"),
    [
        ("gymnasium:Pendulum-v1", "gymnasium:Pendulum-v1"),
        ("Pendulum-v1", "Pendulum-v1"),
        ("module:EnvId-v0", "module:EnvId-v0"),
        ("gymnasium:module:EnvId-v0", "module:EnvId-v0"),
    ],
)
def test_an_id_of_a_third_party_is_found_with_and_without_the_prefix(task: str, gym_id: str) -> None:
    assert gymnasium_id(task) == gym_id


@pytest.mark.covers("U1")
def test_an_id_with_too_many_parts_is_one_line() -> None:
    with pytest.raises(UsageError, match="not of the form module:EnvId"):
        parse_task("a:b:c:D-v0/gymnasium.fastsac")


@pytest.mark.covers("U1")
@pytest.mark.parametrize("name", ["workers", "transport", "topology.mine"])
def test_a_task_in_a_module_of_our_own_names_is_one_line(name: str) -> None:
    with pytest.raises(UsageError, match="a package of motrix_rl's own; give yours another name"):
        make_env(f"{name}:Task", "mujoco", 1, seed=0)
