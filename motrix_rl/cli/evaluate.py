"""`motrix-rl eval`: plays whole episodes with a trained policy and tells the mean return."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from motrix_rl.checkpoint.policy import choose_checkpoint, load_policy
from motrix_rl.cli.arguments import Arguments, positive_int, seed
from motrix_rl.config import load_saved
from motrix_rl.errors import UsageError
from motrix_rl.export.policy_file import FILE_NAME
from motrix_rl.extras import require
from motrix_rl.runs import ResolvedRun, resolve_run
from motrix_rl.tasks.registry import parse_task

Act = Callable[[Any, Any], None]

#: Worlds stepped side by side at most; more only cost memory.
MAX_WORLDS = 64


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
    arguments.add_argument("--seed", type=seed, default=1, help="seed of the environments (default: 1)")
    arguments.add_argument(
        "--threads", type=positive_int, default=1, help="threads that step worlds (default: 1)"
    )
    arguments.add_argument(
        "--latest", action="store_true", help="the newest checkpoint instead of the best policy"
    )
    arguments.add_argument(
        "--onnx",
        nargs="?",
        const=FILE_NAME,
        metavar="FILE",
        help=f"evaluate an exported file, in onnxruntime alone (default: {FILE_NAME} of the run)",
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs are (default: runs)"
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    given = arguments.parse_args(words)

    run = resolve_run(given.run, given.runs_root)
    if given.onnx is None:
        act, facts = _checkpoint_policy(run, newest=given.latest)
    elif given.latest:
        raise UsageError("--latest chooses a checkpoint, --onnx a file; give one of the two")
    else:
        path = run.run_dir.path / FILE_NAME if given.onnx == FILE_NAME else Path(given.onnx).expanduser()
        act, facts = _exported_policy(path, given.run)
    result = _play(run, act, given.episodes, given.seed, given.threads) | facts
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


def _checkpoint_policy(run: ResolvedRun, *, newest: bool) -> tuple[Act, dict[str, Any]]:
    checkpoint = choose_checkpoint(run, newest=newest)
    policy, saved = load_policy(checkpoint)

    def act(obs: Any, out: Any) -> None:
        policy.act(obs, out, deterministic=True, generator=None)

    generation = int(saved.get("generation", checkpoint.step))
    return act, {"generation": generation, "checkpoint": str(_shown(checkpoint.path))}


def _exported_policy(path: Path, run: str) -> tuple[Act, dict[str, Any]]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; write it with: motrix-rl export {run}")
    require(["onnxruntime"], "export", "--onnx")
    from motrix_rl.export.runtime import OnnxPolicy

    policy = OnnxPolicy(path)
    return policy.act, {
        "generation": int(policy.metadata.get("generation", -1)),
        "checkpoint": str(_shown(path.absolute())),
    }


def _play(run: ResolvedRun, act: Act, episodes: int, seed: int, threads: int) -> dict[str, Any]:
    from motrix_rl.envs.evaluation import evaluate
    from motrix_rl.tasks.registry import make_env

    config = load_saved(run.run_dir.config_path)
    task = parse_task(config.task)
    env = make_env(
        task.task, task.backend, min(episodes, MAX_WORLDS), seed=seed, num_threads=threads, options=config.env
    )
    try:
        result = evaluate(env, act, episodes, seed=seed)
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
        "seed": seed,
    }


def _shown(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
