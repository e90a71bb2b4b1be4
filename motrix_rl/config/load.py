"""From the words of a command line to a validated `RootConfig`.

    words -> task -> layers (recipes, or the configuration of the run that is resumed) -> overrides -> schema

Imports no torch, mujoco or gymnasium, so that a mistake is answered at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from motrix_rl.config.describe import OptionTable, option_table
from motrix_rl.config.overrides import check_keys, split_overrides
from motrix_rl.config.recipes import recipe_paths
from motrix_rl.config.schema import DEFAULT_TASK, RootConfig
from motrix_rl.config.suggest import check_key, explain, explain_value
from motrix_rl.config.values import alternatives, dump_yaml, parse_value, read_yaml
from motrix_rl.errors import UsageError, nearest
from motrix_rl.runs import RunDirectory, newest_run, resolve_run
from motrix_rl.tasks.registry import TaskRef, parse_task, task_options_model

# Where a run lies and what it went on from is its own; a run that resumes it does not take that over.
_NOT_INHERITED = ("run_dir", "runs_root", "resume", "task")


def load_config(
    words: Sequence[str], flags: Sequence[str] = (), on_note: Callable[[str], None] | None = None
) -> RootConfig:
    """Builds the configuration of a run.

    Args:
        words: `key=value` words, for instance `["task=hopper/mujoco.fastsac", "num_envs=64"]`.
        flags: flags that the command knows, only for the message about one that it does not know.
        on_note: called with what the user should be told about how the words were read.

    Returns:
        The validated configuration; `config.env` holds every option of the task, defaults included.

    Raises:
        UsageError: anything that is misspelt, does not exist, has the wrong type or does not fit together:
            one line with the nearest thing that works.
    """
    texts = split_overrides(words, flags, option_table())
    # A misspelt `task` must not be answered with complaints about the default task's options.
    check_keys([key for key in texts if key.split(".")[0] != "env"], option_table())
    ref = _task_of(texts)
    if ref.note is not None and on_note is not None:
        on_note(ref.note)
    env_model = task_options_model(ref.task, ref.backend)
    table = option_table(env_model)
    check_keys(list(texts), table)
    layers = _layers(ref, texts, table)
    overrides = {key: _value(key, text, table) for key, text in texts.items() if key != "task"}
    merged = _merge(layers, overrides)
    merged["task"] = str(ref)
    return validate(merged, env_model, table)


def validate(content: dict[str, Any], env_model: type[BaseModel], table: OptionTable) -> RootConfig:
    """Validates a nested configuration.

    Raises:
        UsageError: one line about the first thing that is wrong.
    """
    given = _flat(content, table)
    for key, value in given.items():
        check_key(key, table)
        option = table.options.get(key)
        if option is not None:
            _refuse_odd_number(key, value, table)
    try:
        env = env_model.model_validate(content.get("env") or {})
    except ValidationError as error:
        raise UsageError(explain(error, table, given, prefix="env.")) from error
    try:
        return RootConfig.model_validate({**content, "env": env.model_dump()})
    except ValidationError as error:
        raise UsageError(explain(error, table, given)) from error


def dump_config(config: RootConfig) -> str:
    """Returns the whole configuration as YAML; `load_saved` reads it back."""
    return dump_yaml(_plain(config.model_dump()))


def _plain(value: Any) -> Any:
    """Tuples as lists, which YAML knows. (Pydantic's JSON mode would do it too, and make infinity a null.)"""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in cast("Sequence[Any]", value)]
    return value


def load_saved(path: Path) -> RootConfig:
    """Reads the `config.yaml` of a run.

    Raises:
        UsageError: it is missing, damaged, or of a version with other options.
    """
    content = _read_saved(path)
    ref = parse_task(str(content["task"]))
    env_model = task_options_model(ref.task, ref.backend)
    try:
        return validate(content, env_model, option_table(env_model))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _read_saved(path: Path) -> dict[str, Any]:
    """Reads the configuration that a run has written; such a file is whole, or not that run's any more.

    Raises:
        UsageError: it is missing or damaged.
    """
    content = read_yaml(path)
    if content.get("task") is None:  # cut short or emptied: not a run with every option at its default
        raise UsageError(
            f"{path} is not the configuration of a run: it names no task; put the whole file back"
        )
    return content


def _task_of(texts: Mapping[str, str]) -> TaskRef:
    """The task that is asked for; without one, that of the run that is resumed, or the default."""
    named = texts.get("task")
    if named is not None:
        named = parse_value("task", named, str)
    resumed = _resumed_config(texts, None if named is None else parse_task(named))
    if resumed is None:
        return parse_task(named or DEFAULT_TASK)
    theirs = parse_task(str(_read_saved(resumed)["task"]))
    if named is not None and parse_task(named) != theirs:
        raise UsageError(f"task={named} is not the task of the run to resume, {theirs}; leave task out")
    return theirs


def _layers(ref: TaskRef, texts: Mapping[str, str], table: OptionTable) -> list[dict[str, Any]]:
    """The configurations that the overrides are laid over."""
    resumed = _resumed_config(texts, ref)
    paths = [resumed] if resumed is not None else recipe_paths(ref.task, ref.backend, ref.algo)
    layers = [_read_saved(resumed)] if resumed is not None else [read_yaml(path) for path in paths]
    for path, layer in zip(paths, layers, strict=True):
        for key in _NOT_INHERITED:
            layer.pop(key, None)
        for key in _flat(layer, table):
            try:
                check_key(key, table)
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
    return layers


def _resumed_config(texts: Mapping[str, str], ref: TaskRef | None) -> Path | None:
    """Path of the resumed run's configuration; None where nothing is resumed, or `auto` finds no run yet."""
    fields = RootConfig.model_fields
    resume = parse_value("resume", texts["resume"], str | None) if "resume" in texts else None
    if resume is None:
        return None
    root = parse_value("runs_root", texts.get("runs_root", fields["runs_root"].default), str)
    if resume != "auto":
        if nearest(resume, ["auto"]) is not None and not Path(resume).exists():
            raise UsageError(f"resume={resume} is neither a run nor 'auto'; did you mean 'auto'?")
        path = resolve_run(resume, root, words=["auto"]).run_dir.config_path
    else:
        chosen = parse_value("run_dir", texts["run_dir"], str | None) if "run_dir" in texts else None
        if chosen is not None:  # a job that names its directory goes on in it
            run = RunDirectory(Path(chosen).expanduser())
            run = run if run.holds_run() and run.config_path.is_file() else None
        else:
            task = ref if ref is not None else parse_task(DEFAULT_TASK)
            run = newest_run(root, task.task, task.backend, task.algo, with_checkpoint=True)
        if run is None:
            return None
        path = run.config_path
    if not path.is_file():
        raise UsageError(f"{path.parent} cannot be resumed: its config.yaml is missing")
    return path


def _value(key: str, text: str, table: OptionTable) -> Any:
    option = table.options.get(key)
    value = parse_value(key, text, Any if option is None else option.annotation)
    if value is None and option is not None and type(None) not in alternatives(option.annotation):
        raise UsageError(explain_value(option, None))
    return value


def _merge(layers: Sequence[dict[str, Any]], overrides: Mapping[str, Any]) -> dict[str, Any]:
    try:
        merged = OmegaConf.merge(*layers) if layers else OmegaConf.create({})
        for key, value in overrides.items():
            OmegaConf.update(merged, key, value, merge=False, force_add=True)
        content = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise UsageError(f"the options cannot be merged: {' '.join(str(error).split())}") from error
    return cast("dict[str, Any]", content)


def _flat(content: Mapping[str, Any], table: OptionTable, prefix: str = "") -> dict[str, Any]:
    """Nested mapping -> values by dotted key; options that hold a mapping keep it whole."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        key = f"{prefix}{name}"
        option = table.options.get(key)
        if (
            isinstance(value, Mapping)
            and (option is None or not option.is_mapping)
            and (value or key in table.groups)
        ):
            flat.update(_flat(cast("Mapping[str, Any]", value), table, f"{key}."))
        else:
            flat[key] = value
    return flat


def _refuse_odd_number(key: str, value: Any, table: OptionTable) -> None:
    """Refuses what pydantic would take for a number: `true` as 1, infinity, not-a-number."""
    option = table.options[key]
    kinds = alternatives(option.annotation)
    numeric = (int in kinds or float in kinds) and bool not in kinds
    if numeric and (isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))):
        raise UsageError(explain_value(option, value))
