"""`policy.onnx`: writing it, and holding it to the policy that it was written from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.checkpoint import CheckpointRef
from motrix_rl.checkpoint.policy import choose_checkpoint, load_policy
from motrix_rl.export.errors import ExportError
from motrix_rl.extras import missing, require
from motrix_rl.runs import ResolvedRun, RunDirectory, atomic

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.policy import Policy

FILE_NAME = "policy.onnx"
PACKAGES = ("onnx", "onnxruntime")
#: Largest difference between onnxruntime's and torch's actions, in units of half an action's range or of 1.
TOLERANCE = 1e-5
OBSERVATIONS = 1000


@dataclass(frozen=True)
class ExportReport:
    """What was written.

    Attributes:
        path: the file.
        nbytes: its size.
        metadata: the strings stored in it.
        error: largest difference to torch's actions over `OBSERVATIONS` observations, in units of half an
            action's range where that is above 1; None where onnxruntime is not installed.
    """

    path: Path
    nbytes: int
    metadata: dict[str, str]
    error: float | None


def can_export() -> bool:
    """Whether the package that writes the file is installed; imports nothing."""
    return not missing(PACKAGES[:1])


def export_policy(run_dir: str | Path) -> ExportReport | None:
    """Writes `policy.onnx` of a run's best policy (or newest checkpoint) into the run directory.

    Meant for a run's end: takes a few tenths of a second where torch is loaded already, replaces an older
    file only when the new one is complete, and leaves the comparison with torch to `motrix-rl export`.

    Returns:
        What was written; None where `onnx` is not installed.

    Raises:
        UsageError: there is no policy yet.
        MotrixError: it cannot be read or written.
    """
    if not can_export():
        return None
    run = RunDirectory.open(run_dir)
    checkpoint = choose_checkpoint(ResolvedRun(run))
    return export_checkpoint(checkpoint, task_of(run), run.path / FILE_NAME, check=False)


def task_of(run: RunDirectory) -> str:
    """Full name of the task that a run trained."""
    record = run.record.read()
    return "{task}/{backend}.{algo}".format_map({"task": "?", "backend": "?", "algo": "?", **record})


def export_checkpoint(
    checkpoint: CheckpointRef, task: str, path: Path, *, check: bool = True
) -> ExportReport:
    """Writes a policy as ONNX.

    Args:
        checkpoint: the policy.
        task: full name of its task.
        path: where the file goes; an older one is replaced once the new one has passed the check.
        check: hold it to torch, where onnxruntime is installed.

    Raises:
        UsageError: `onnx` is not installed.
        CheckpointError: the checkpoint is damaged.
        ExportError: the file cannot be written, or computes something else.
    """
    require(PACKAGES[:1], "export", "an ONNX file")
    policy, saved = load_policy(checkpoint)
    metadata = describe(saved, task, int(saved.get("generation", checkpoint.step)))
    data = serialise(policy, saved, metadata)
    error = None
    if check and not missing(PACKAGES[1:]):
        error = difference(policy, data)
        if not error <= TOLERANCE:
            raise ExportError(
                f"{path} was not written: onnxruntime's actions differ from torch's by {error:.1e}"
                f" (limit {TOLERANCE:.0e})"
            )
    try:
        atomic.replace_file(path, data)
    except OSError as fault:
        raise ExportError(f"cannot write {path}: {fault.strerror or fault}") from fault
    return ExportReport(path, len(data), metadata, error)


def describe(saved: dict[str, Any], task: str, generation: int) -> dict[str, str]:
    """What a user of the file needs to know of it; lists are JSON."""
    spec = saved["env_spec"]
    return {
        "task": task,
        "generation": str(generation),
        "obs_dim": str(spec["obs_dim"]),
        "action_dim": str(spec["action_dim"]),
        "action_low": json.dumps(list(spec["action_low"])),
        "action_high": json.dumps(list(spec["action_high"])),
        "control_dt": json.dumps(spec.get("control_dt")),
    }


def serialise(policy: Policy, saved: dict[str, Any], metadata: dict[str, str]) -> bytes:
    """The file's bytes."""
    import torch

    from motrix_rl.export.graph import policy_graph

    low, high = (torch.tensor(saved["env_spec"][name]) for name in ("action_low", "action_high"))
    return policy_graph(policy.export_module(), low, high, metadata).SerializeToString()


def difference(policy: Policy, data: bytes, count: int = OBSERVATIONS) -> float:
    """Largest difference between the actions of a file and of the policy; see `ExportReport.error`.

    Observations are drawn around what the normaliser has seen, to four deviations and beyond.
    """
    import tempfile

    import numpy as np

    from motrix_rl.export.runtime import OnnxPolicy

    module = policy.export_module()
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((count, policy.obs_dim)) * rng.choice([0.1, 1.0, 4.0], (count, 1))
    obs = (module.shift.numpy() + spread / module.scale.numpy()).astype(np.float32)
    expected, got = (np.zeros((count, policy.action_dim), np.float32) for _ in range(2))
    policy.act(obs, expected, deterministic=True)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(data)
        file.flush()
        OnnxPolicy(Path(file.name)).act(obs, got)
    unit = np.maximum(module.scaling.scale.numpy(), 1.0)
    return float(np.max(np.abs(got - expected) / unit))
