"""Names of tasks, backends and algorithms, and the way from a name to an environment.

Importing this module, parsing a name and asking for the options of a standard task load neither mujoco,
gymnasium nor torch; `env_spec` and `make_env` load what the backend needs.

A task is one of

* a standard task, such as `halfcheetah` (backend `mujoco`),
* a task that an installed package offers under the entry-point group `motrix_rl.tasks`,
* `module:Class`, a `BatchEnv` subclass of one's own in one file,
* with the backend `gymnasium`: a registered id, or `module:id` (`gymnasium:Pendulum-v1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from motrix_rl.errors import UsageError, did_you_mean, nearest
from motrix_rl.tasks.loading import import_module, load_object, plugin_tasks

if TYPE_CHECKING:
    from motrix_rl.envs.base import BatchEnv
    from motrix_rl.envs.options import EnvOptions
    from motrix_rl.envs.spec import EnvSpec

ALGORITHMS = ("fastsac",)
BACKENDS = ("mujoco", "gymnasium", "python")
_BACKEND_ALIASES = {"motrix": "mujoco"}
_OPTIONS = "motrix_rl.envs.mujoco.options"
_TASKS = "motrix_rl.envs.mujoco"


@dataclass(frozen=True)
class TaskRef:
    """A task name taken apart: `<task>/<backend>.<algo>`.

    Attributes:
        task: name of the task.
        backend: one of `BACKENDS`.
        algo: one of `ALGORITHMS`.
        note: what the user should be told about how the name was read, or None.
    """

    task: str
    backend: str
    algo: str
    note: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.task}/{self.backend}.{self.algo}"


@dataclass(frozen=True)
class TaskDefinition:
    """A standard task: where its class and its options are, and one line about it."""

    env_class: str
    options: str
    summary: str


def _standard(module: str, name: str, summary: str) -> TaskDefinition:
    return TaskDefinition(f"{_TASKS}.{module}:{name}", f"{_OPTIONS}:{name}Options", summary)


STANDARD_TASKS: dict[str, TaskDefinition] = {
    "ant": _standard("ant", "Ant", "run, on four legs"),
    "cartpole-swingup": _standard("cartpole_swingup", "CartpoleSwingup", "swing up a pole on a cart"),
    "halfcheetah": _standard("halfcheetah", "HalfCheetah", "run, planar, on two legs"),
    "hopper": _standard("hopper", "Hopper", "hop, planar, on one leg"),
    "humanoid": _standard("humanoid", "Humanoid", "walk, on two legs"),
    "inverted-double-pendulum": _standard(
        "inverted_double_pendulum", "InvertedDoublePendulum", "balance two links on a cart"
    ),
    "reacher": _standard("reacher", "Reacher", "bring the tip of an arm to a target"),
    "walker2d": _standard("walker2d", "Walker2d", "walk, planar, on two legs"),
}


def task_names() -> list[str]:
    """Returns the names of the standard tasks and of those that installed packages offer, sorted."""
    return sorted({*STANDARD_TASKS, *plugin_tasks()})


def parse_task(text: str) -> TaskRef:
    """Takes `<task>/<backend>.<algo>` apart and checks every part that can be checked without an import.

    Raises:
        UsageError: a part is missing or unknown; the message names the nearest valid one.
    """
    task, slash, rest = text.rpartition("/")
    backend, dot, algo = rest.partition(".")
    if not (slash and dot and task and backend and algo):
        raise UsageError(f"task={text} is not of the form <task>/<backend>.<algo>; {_instance(text)}")
    note = None
    if backend in _BACKEND_ALIASES:
        note = f"backend {backend} means {_BACKEND_ALIASES[backend]}"
        backend = _BACKEND_ALIASES[backend]
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}{did_you_mean(backend, BACKENDS)}")
    if algo not in ALGORITHMS:
        raise UsageError(f"unknown algorithm {algo!r}{did_you_mean(algo, ALGORITHMS)}")
    _check_name(task, backend)
    return TaskRef(task, backend, algo, note)


def gymnasium_id(task: str) -> str:
    """The id for `gymnasium.make`: `EnvId` or `module:EnvId`. `gymnasium:` before a third party's is allowed."""
    return task.removeprefix("gymnasium:") if task.count(":") > 1 else task


def _check_name(task: str, backend: str) -> None:
    if backend == "gymnasium":
        if gymnasium_id(task).count(":") > 1:
            raise UsageError(f"{task} is not of the form module:EnvId, for instance gymnasium:Pendulum-v1")
        if task in STANDARD_TASKS:
            raise UsageError(
                f"{task} is a task of the backend mujoco ({task}/mujoco.fastsac); with gymnasium, give an id "
                "such as gymnasium:Pendulum-v1"
            )
        return
    if ":" in task:
        if not all(part.isidentifier() for part in task.replace(":", ".").split(".")):
            raise UsageError(
                f"{task} is not of the form module:Class; a registered Gymnasium environment is named "
                f"{task}/gymnasium.fastsac"
            )
        return
    if task in STANDARD_TASKS and backend == "mujoco":
        return
    if task not in plugin_tasks():
        raise UsageError(f"unknown task {task!r} for the backend {backend}{_task_hint(task)}")


def _instance(text: str) -> str:
    """A whole task name close to what was written, or the tasks that there are."""
    task = text.split("/")[0].strip()
    if ":" in task:
        return f"for instance {task}/gymnasium.{ALGORITHMS[0]}"
    found = nearest(task, task_names())
    if found is not None:
        return f"for instance {found}/mujoco.{ALGORITHMS[0]}"
    return f"for instance halfcheetah/mujoco.{ALGORITHMS[0]}{_task_hint(task)}"


def _task_hint(task: str) -> str:
    hint = did_you_mean(task, task_names())
    return hint or f"; tasks: {', '.join(task_names())}, or gymnasium:<id>/gymnasium.fastsac"


def task_options_model(task: str, backend: str) -> type[EnvOptions]:
    """Returns the pydantic model of a task's options.

    Loads no simulator for standard tasks and Gymnasium ids; a task of one's own is imported.

    Raises:
        UsageError: unknown task or backend.
    """
    if backend == "gymnasium":
        from motrix_rl.envs.options import GymnasiumOptions

        return GymnasiumOptions
    if task in STANDARD_TASKS and backend == "mujoco":
        return load_object(STANDARD_TASKS[task].options)
    return _own_options(_env_class(task, backend))


def _own_options(env_class: type[BatchEnv]) -> type[EnvOptions]:
    from motrix_rl.envs.options import EnvOptions

    model = env_class.Options
    if not (isinstance(model, type) and issubclass(model, EnvOptions)):
        raise UsageError(
            f"{env_class.__name__}.Options must be a subclass of {EnvOptions.__module__}.EnvOptions"
        )
    return model


def _env_class(task: str, backend: str) -> type[BatchEnv]:
    """Imports the class of a task that is not a Gymnasium id."""
    _check_name(task, backend)
    if ":" in task:
        env_class = load_object(task)
    elif task in STANDARD_TASKS:
        env_class = load_object(STANDARD_TASKS[task].env_class)
    else:
        env_class = plugin_tasks()[task].load()
    from motrix_rl.envs.base import BatchEnv

    if not (isinstance(env_class, type) and issubclass(env_class, BatchEnv)):
        raise UsageError(f"{task} is not a subclass of motrix_rl.envs.base.BatchEnv")
    if env_class.backend != backend:
        raise UsageError(f"{task} is a task of the backend {env_class.backend}, not {backend}")
    return env_class


def validate_options(task: str, backend: str, options: Mapping[str, Any] | BaseModel | None) -> EnvOptions:
    """Returns a task's options, validated.

    Raises:
        UsageError: an option does not exist or has a bad value; the message names the nearest valid one.
    """
    model = task_options_model(task, backend)
    if isinstance(options, model):
        return options
    given = options.model_dump() if isinstance(options, BaseModel) else dict(options or {})
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(name, model.model_fields)
            raise UsageError(f"{task} has no option env.{name}{hint}") from error
        raise UsageError(f"env.{name}={first['input']!r}: {first['msg']}") from error


def make_env(
    task: str,
    backend: str,
    num_envs: int,
    *,
    seed: int,
    num_threads: int = 1,
    options: Mapping[str, Any] | BaseModel | None = None,
    first_world: int = 0,
) -> BatchEnv:
    """Makes the worlds of a task, in the process that is to step them.

    Args:
        task: name of the task.
        backend: name of the backend.
        num_envs: number of worlds.
        seed: start of the random streams; world i's depends on (seed, first_world + i) alone.
        num_threads: threads that step (backend `mujoco`); the results do not depend on it.
        options: the task's options, as a mapping or as an instance of its model.
        first_world: index of world 0 within the whole run.

    Raises:
        UsageError: unknown task, bad options, or an environment that cannot be trained on.
    """
    chosen = validate_options(task, backend, options)
    if backend == "gymnasium":
        from motrix_rl.envs.gymnasium_backend import GymnasiumBatchEnv
        from motrix_rl.envs.options import GymnasiumOptions

        assert isinstance(chosen, GymnasiumOptions)
        env_id = gymnasium_id(task)
        if ":" in env_id:
            # Gymnasium would import it too, but not from the working directory.
            import_module(env_id.partition(":")[0])
        return GymnasiumBatchEnv(env_id, chosen, num_envs, seed=seed, first_world=first_world)
    # The constructor of a task, own or standard, is this call; BatchEnv's own is for subclasses.
    factory: Any = _env_class(task, backend)
    return factory(chosen, num_envs, seed=seed, num_threads=num_threads, first_world=first_world)


def env_spec(task: str, backend: str, options: Mapping[str, Any] | BaseModel | None = None) -> EnvSpec:
    """Returns sizes and bounds of a task; loads its simulator and makes one world for a moment.

    Raises:
        UsageError: unknown task, bad options, or an environment that cannot be trained on.
    """
    env = make_env(task, backend, 1, seed=0, num_threads=1, options=options)
    try:
        return env.env_spec
    finally:
        env.close()
