"""The text of `train.py --help`: the whole schema, group by group."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from pydantic import BaseModel

from motrix_rl.config import DEFAULT_TASK, load_config
from motrix_rl.config.describe import Option, OptionTable, option_table
from motrix_rl.tasks.registry import parse_task, task_names, task_options_model

_INTRO = """\
usage: {program} [task=<task>/<backend>.<algorithm>] [key=value ...] [--print-config] [--help]

Trains a policy and leaves a run directory. Without words it trains {default}.
Values are YAML: numbers, true, false, null, [lists]. Keys are written in full, as in
    {program} task=halfcheetah/mujoco.fastsac num_envs=64 algo.agent.gamma=0.98

tasks: {tasks}
       gymnasium:<EnvId>/gymnasium.fastsac for any Gymnasium environment with Box spaces

flags:
  --print-config  print the resolved configuration and stop
  --help          print this and stop
"""


def train_help(words: Sequence[str], program: str) -> str:
    """Returns the help text.

    Args:
        words: the `key=value` words beside `--help`; the values shown are those they lead to.
        program: how the command was called.

    Raises:
        UsageError: the words are wrong.
    """
    config = load_config(words)
    ref = parse_task(config.task)
    table = option_table(task_options_model(ref.task, ref.backend))
    width = max(72, min(shutil.get_terminal_size((110, 24)).columns, 140))
    intro = _INTRO.format(program=program, default=DEFAULT_TASK, tasks=", ".join(task_names()))
    sections = [intro, f"options (values of {config.task}):"]
    for group in ("", *table.groups):
        sections.append(_section(group, table, config, width))
    return "\n".join(section for section in sections if section)


def _section(group: str, table: OptionTable, config: BaseModel, width: int) -> str:
    prefix = f"{group}." if group else ""
    options = [option for key, option in table.options.items() if key == prefix + key.rsplit(".", 1)[-1]]
    if not options:
        return ""
    title = f"\n{group}: {table.groups[group]}" if group else ""
    return "\n".join(filter(None, [title, *(_entry(option, config, width) for option in options)]))


def _entry(option: Option, config: BaseModel, width: int) -> str:
    """One option: name and value, its kind and bounds, and the description below."""
    kind = f"{option.kind}, {option.bounds}" if option.bounds else option.kind
    head = f"  {option.key} = {_shown(_lookup(config, option.key))}"
    head = f"{head:<{min(62, width - 30)}}  ({kind})"
    text = textwrap.fill(option.description, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return f"{head}\n{text}" if option.description else head


def _lookup(config: BaseModel, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name)
    return value


def _shown(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
