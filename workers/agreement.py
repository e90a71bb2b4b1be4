"""What must be the same on all machines of a run, and the line that says what is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

_OPTIONS = "algo.trainer.async_options."

#: Options that each machine may have its own way. Where the run lies and goes on from is settled by machine 0 alone.
MAY_DIFFER = frozenset(
    (
        "run_dir",
        "runs_root",
        "resume",
        "logging.level",
        "logging.console",
        _OPTIONS + "learner_devices",
        _OPTIONS + "learner_cpu_cores",
        _OPTIONS + "collector_cpu_cores",
        _OPTIONS + "cpus_per_collector",
        _OPTIONS + "collector_inference_device",
        _OPTIONS + "transition_ipc",
        _OPTIONS + "weight_ipc",
        _OPTIONS + "weight_ipc_min_bytes",
    )
)


def shared_settings(config: RootConfig) -> dict[str, Any]:
    """Every option that all machines must agree on, by its dotted name, as plain data that JSON gives back equal."""
    flat = by_dotted_name(json.loads(json.dumps(config.model_dump(), default=str)))
    return {key: value for key, value in flat.items() if key not in MAY_DIFFER}


def differences(ours: Mapping[str, Any], theirs: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """What differs, each option once, with its values on machine 0 and on the first machine that has another.

    Args:
        ours: settings of machine 0.
        theirs: settings of the other machines, by their number.
    """
    found: list[str] = []
    for key in sorted({*ours, *(key for settings in theirs.values() for key in settings)}):
        odd = [node for node, settings in sorted(theirs.items()) if _said(settings, key) != _said(ours, key)]
        if odd:
            more = f" (and others on {len(odd) - 1} more)" if len(odd) > 1 else ""
            value = _said(theirs[odd[0]], key)
            found.append(f"{key}={_said(ours, key)} on machine 0 and {value} on machine {odd[0]}{more}")
    return found


def _said(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "unknown"


def by_dotted_name(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as a flat one; one that is empty stays as it is."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            flat.update(by_dotted_name(cast("Mapping[str, Any]", value), f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
