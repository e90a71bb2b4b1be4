"""From what a user named to a policy that can act."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from motrix_rl.checkpoint.best import POLICY, BestStore
from motrix_rl.checkpoint.errors import CheckpointError
from motrix_rl.checkpoint.store import CheckpointRef, CheckpointStore, load_file, open_checkpoint
from motrix_rl.errors import UsageError
from motrix_rl.runs import ResolvedRun

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.policy import Policy

log = logging.getLogger(__name__)


def choose_checkpoint(run: ResolvedRun, *, newest: bool = False) -> CheckpointRef:
    """Finds the policy that a reference means: the checkpoint named, the best one, or the newest.

    Args:
        run: what was named.
        newest: of a run, take the newest checkpoint also where there is a best policy.

    Raises:
        UsageError: there is none yet, or the one named is damaged.
    """
    skipped: list[str] = []
    try:
        if run.checkpoint is not None:
            return open_checkpoint(run.checkpoint)
        best = None if newest else BestStore(run.run_dir.best).open()
        found = best or CheckpointStore(run.run_dir.checkpoints).newest_valid(skipped.append)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    if found is None and skipped:
        which = "; ".join(line.removeprefix("skipped checkpoint ") for line in skipped)
        raise UsageError(f"{run.run_dir} has no checkpoint that is whole: {which}")
    for line in skipped:
        log.warning("%s", line)
    if found is None and run.run_dir.record.is_running():
        raise UsageError(
            f"{run.run_dir} has no checkpoint yet; it appears after checkpoint.interval generations"
        )
    if found is None:
        raise UsageError(f"{run.run_dir} has no checkpoint: the run ended before it saved one")
    return found


def load_policy(checkpoint: CheckpointRef) -> tuple[Policy, dict[str, Any]]:
    """Builds the acting side of a saved policy.

    Returns:
        The policy, on the CPU, and what the file says beside it (`generation`, `updates`).

    Raises:
        CheckpointError: the file is damaged, or of a version with other contents.
    """
    # Loads torch, which readers of checkpoints' names and dates do without.
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.algorithms.fastsac.policy import Policy
    from motrix_rl.envs.spec import EnvSpec

    saved = load_file(checkpoint, POLICY)
    try:
        agent = FastSACConfig.model_validate(saved["agent"])
        sizes: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in saved["env_spec"].items()
        }
        policy = Policy(agent, EnvSpec(**sizes))
        policy.load(saved["policy"].numpy())
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.path} holds no policy that this version reads: {error}"
        ) from error
    return policy, saved
