"""`motrix-rl eval`: plays whole episodes with a trained policy and tells the mean return."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.checkpoint import (
    BestStore,
    CheckpointError,
    CheckpointRef,
    CheckpointStore,
    load_file,
    open_checkpoint,
)
from motrix_rl.cli.arguments import Arguments, positive_int
from motrix_rl.config import load_saved
from motrix_rl.errors import UsageError
from motrix_rl.runs import ResolvedRun, resolve_run
from motrix_rl.tasks.registry import parse_task

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.policy import Policy

#: Worlds stepped side by side at most; more only cost memory.
MAX_WORLDS = 64
POLICY_FILE = "policy.pt"


def main(words: list[str], program: str) -> int:
    """Evaluates and prints; returns 0.

    Raises:
        UsageError: there is no such run, or it has nothing to evaluate yet.
    """
    arguments = Arguments(program, "Plays whole episodes with a trained policy, without exploration noise.")
    arguments.add_argument("run", metavar="RUN", help="a run directory, a checkpoint, or 'latest'")
    arguments.add_argument(
        "--episodes", type=positive_int, default=20, metavar="N", help="episodes (default: 20)"
    )
    arguments.add_argument("--seed", type=int, default=1, help="seed of the environments (default: 1)")
    arguments.add_argument(
        "--threads", type=positive_int, default=1, help="threads that step worlds (default: 1)"
    )
    arguments.add_argument(
        "--latest", action="store_true", help="the newest checkpoint instead of the best policy"
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs are (default: runs)"
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    given = arguments.parse_args(words)

    run = resolve_run(given.run, given.runs_root)
    checkpoint = choose_checkpoint(run, newest=given.latest)
    result = _play(run, checkpoint, given.episodes, given.seed, given.threads)
    print(json.dumps(result) if given.json else _in_words(result))
    return 0


def _in_words(result: dict[str, Any]) -> str:
    interval = "" if result["return_ci95"] is None else f" +- {result['return_ci95']:.1f} (95 % of the mean)"
    lines = [
        f"return {result['return_mean']:.1f}{interval}"
        f" over {result['episodes']} episodes of {result['length_mean']:.0f} steps on average",
        f"policy {result['checkpoint']}, generation {result['generation']}",
    ]
    if result["cut_episodes"]:
        lines.append(f"{result['cut_episodes']} episodes ended early because a number was not finite")
    return "\n".join(lines)


def choose_checkpoint(run: ResolvedRun, *, newest: bool) -> CheckpointRef:
    """Finds the policy that a reference means: the checkpoint named, the best one, or the newest.

    Args:
        run: what was named.
        newest: of a run, take the newest checkpoint also where there is a best policy.

    Raises:
        UsageError: there is none yet, or the one named is damaged.
    """
    try:
        if run.checkpoint is not None:
            return open_checkpoint(run.checkpoint)
        best = None if newest else BestStore(run.run_dir.best).open()
        found = best or CheckpointStore(run.run_dir.checkpoints).newest_valid()
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    if found is None:
        raise UsageError(
            f"{run.run_dir} has no checkpoint yet; it appears after checkpoint.interval generations"
        )
    return found


def load_policy(checkpoint: CheckpointRef) -> tuple[Policy, dict[str, Any]]:
    """Builds the acting side of a saved policy.

    Returns:
        The policy, on the CPU, and what the file says beside it (`generation`, `updates`).

    Raises:
        CheckpointError: the file is damaged, or of a version with other contents.
    """
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.algorithms.fastsac.policy import Policy
    from motrix_rl.envs.spec import EnvSpec

    saved = load_file(checkpoint, POLICY_FILE)
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


def _play(
    run: ResolvedRun, checkpoint: CheckpointRef, episodes: int, seed: int, threads: int
) -> dict[str, Any]:
    from motrix_rl.envs.evaluation import evaluate
    from motrix_rl.tasks.registry import make_env

    config = load_saved(run.run_dir.config_path)
    task = parse_task(config.task)
    policy, saved = load_policy(checkpoint)
    env = make_env(
        task.task, task.backend, min(episodes, MAX_WORLDS), seed=seed, num_threads=threads, options=config.env
    )
    try:
        result = evaluate(env, _acting(policy), episodes, seed=seed)
    finally:
        env.close()
    return {
        "return_mean": float(result.return_mean),
        # One episode has no interval; JSON has no NaN.
        "return_ci95": float(result.return_ci95) if math.isfinite(result.return_ci95) else None,
        "episodes": int(result.episodes),
        "length_mean": float(result.length_mean),
        "cut_episodes": int(result.cut_episodes),
        "task": config.task,
        "generation": int(saved.get("generation", checkpoint.step)),
        "checkpoint": str(_shown(checkpoint.path)),
        "seed": seed,
    }


def _acting(policy: Policy) -> Callable[[Any, Any], None]:
    def act(obs: Any, out: Any) -> None:
        policy.act(obs, out, deterministic=True, generator=None)

    return act


def _shown(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
