"""The two that are compared by rates: how each is started on the walking robot, and what it records."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from motrix_rl.metrics.reader import read_metrics
from tests.bench.peers.catalogue import HERE, OURS
from tests.bench.peers.contestants import FOREVER, ROOT

THEIRS = "motrixlab"
TASK = "tests.bench.peers.walking_task:Walking/mujoco.fastsac"
BATCH = 256
#: Generations before the first update, and those that the replay holds: MotrixLab's defaults.
WARMUP, KEPT = 10, 1024
SEED = 1
#: `motrix-rl bench`, wherever that is installed.
_BENCH = (
    "import sys; from motrix_rl.cli.main import run_verb; sys.exit(run_verb('bench', sys.argv[1:], 'bench'))"
)
#: MotrixLab's defaults in our words, where ours are others: the same networks, losses and ratio of actor updates.
EQUAL: dict[str, Any] = {
    "actor_hidden_dim": 512,
    "critic_hidden_dim": 768,
    "num_q_networks": 2,
    "num_atoms": 101,
    "v_min": -20.0,
    "v_max": 20.0,
    "policy_frequency": 4,
    "n_step": 1,
    "gamma": 0.97,
    "tau": 0.125,
    "critic_target": "own",
    "actor_q": "min",
    "log_std_min": -5.0,
    "log_std_max": 0.0,
    "alpha_init": 0.001,
    "target_entropy_std": "null",
    "target_entropy_ratio": 0.0,
    "actor_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "alpha_learning_rate": 3e-4,
    "weight_decay": 1e-3,
    "max_grad_norm": 0.0,
    "obs_normalization": "true",
    "reward_scaling": "false",
    "batch_size": BATCH,
}


@dataclass(frozen=True)
class Load:
    """Environments of a training, and updates after each step of all of them."""

    num_envs: int
    num_updates: int


#: Many updates for each step, and many steps for each update.
UPDATING, STEPPING = Load(64, 4), Load(256, 1)


@dataclass(frozen=True)
class Sample:
    """What a training had done by a moment: Unix time, updates, environment steps."""

    time: float
    updates: int
    steps: int


class Side(ABC):
    """One of the two.

    Attributes:
        name: in tables and files.
        variables: for its environment; the processors are compared, so no GPU is to be seen.
        grace_s: seconds that a training needs to end after SIGTERM.
    """

    name: ClassVar[str]
    variables: ClassVar[dict[str, str]] = {"CUDA_VISIBLE_DEVICES": "", "PYTHONNOUSERSITE": "1"}
    grace_s = 30.0

    @abstractmethod
    def training(self, load: Load, work: Path) -> list[str]:
        """The command of a training without end."""

    @abstractmethod
    def learner(self, seconds: float, work: Path) -> list[str]:
        """A command that measures the learner alone on the first CPU it may use, and prints JSON at last."""

    @abstractmethod
    def samples(self, load: Load, work: Path) -> list[Sample]:
        """What a training has recorded so far, oldest first."""

    @abstractmethod
    def learner_figures(self, said: dict[str, Any]) -> dict[str, Any]:
        """Figures of what `learner` printed: `learner_updates_per_s`, and what else there is."""

    def directory(self, work: Path) -> Path:
        """Where its commands are run."""
        return work

    def facts(self, work: Path) -> dict[str, Any]:
        """Versions, as far as a training has told them."""
        return {}


class OurSide(Side):
    """`train.py` and `motrix-rl bench learner`, on a task of one's own.

    Args:
        robot: directory of the robot's files.
        smaller: settings in place of those here, for a test.
    """

    name = OURS

    def __init__(self, robot: Path, smaller: dict[str, Any] | None = None) -> None:
        self._robot, self._smaller = robot, smaller or {}

    def training(self, load: Load, work: Path) -> list[str]:
        options = self._options(load) | {
            "seed": SEED,
            "run_dir": work / "run",
            "algo.trainer.num_learning_iterations": FOREVER,
            "eval.interval": 0,
            "checkpoint.interval": 0,
            # Some records a second, as the other side keeps them: the first update is to be seen when it is done.
            "logging.interval": 1 if load.num_updates > 1 else 5,
        }
        return [sys.executable, str(ROOT / "train.py"), *self._words(options)]

    def learner(self, seconds: float, work: Path) -> list[str]:
        flags = ["--json", "--rounds", "1", "--seconds", str(seconds)]
        return [sys.executable, "-c", _BENCH, "learner", *self._words(self._options(UPDATING)), *flags]

    def samples(self, load: Load, work: Path) -> list[Sample]:
        records = read_metrics(work / "run" / "metrics.jsonl")
        return [Sample(r["time"], r["updates"], r["env_steps"]) for r in records if r["kind"] == "train"]

    def learner_figures(self, said: dict[str, Any]) -> dict[str, Any]:
        return {
            "learner_updates_per_s": said["updates_per_s"]["median"],
            "gemm_share": said["share_of_gemm"]["median"],
            "gemm_gflop_s": said["gemm_gflop_s"]["median"],
            "layer_gemm_gflop_s": said["layer_gemm_gflop_s"]["median"],
            "flops_per_update": said["flops_per_update"],
        }

    def directory(self, work: Path) -> Path:
        return ROOT  # the task's module is found in the working directory

    def facts(self, work: Path) -> dict[str, Any]:
        described = work / "run" / "run.json"
        if not described.exists():
            return {}
        run = json.loads(described.read_text())
        git = run["git"] or {}
        return {"versions": run["versions"], "commit": git.get("commit"), "dirty": git.get("dirty")}

    def _options(self, load: Load) -> dict[str, Any]:
        agent = EQUAL | {
            "num_updates": load.num_updates,
            "learning_starts": WARMUP * load.num_envs,
            "buffer_size": KEPT * load.num_envs,
        }
        options = {"task": TASK, "env.scene": self._robot / "scene.xml", "num_envs": load.num_envs}
        return options | {f"algo.agent.{key}": value for key, value in agent.items()} | self._smaller

    @staticmethod
    def _words(options: dict[str, Any]) -> list[str]:
        return [f"{key}={value}" for key, value in options.items()]


class TheirSide(Side):
    """MotrixLab's own command on its own simulator, started by a script that registers the task.

    Args:
        robot: directory of the robot's files.
        python: interpreter of its environment.
    """

    name = THEIRS
    # Interrupted within the first seconds of training it waits for its workers without end, and is killed.
    grace_s = 10.0

    def __init__(self, robot: Path, python: Path) -> None:
        self._robot, self._python = robot, python

    def training(self, load: Load, work: Path) -> list[str]:
        return [
            *self._script("train_motrixlab.py"),
            *("--robot", str(self._robot), "--num-envs", str(load.num_envs), "--seed", str(SEED)),
            *self._settings(load),
        ]

    def learner(self, seconds: float, work: Path) -> list[str]:
        words = (str(seconds), str(UPDATING.num_envs))
        return [*self._script("learner_motrixlab.py"), *words, *self._settings(UPDATING)]

    def samples(self, load: Load, work: Path) -> list[Sample]:
        records = read_metrics(work / "record.jsonl")
        return [Sample(r["time"], r["updates"], round(r["generations"] * load.num_envs)) for r in records]

    def learner_figures(self, said: dict[str, Any]) -> dict[str, Any]:
        return {"learner_updates_per_s": said["updates_per_s"], "versions": said["versions"]}

    def _script(self, name: str) -> list[str]:
        return [str(self._python), str(HERE / "native" / name)]

    @staticmethod
    def _settings(load: Load) -> Sequence[str]:
        return (f"algo.agent.batch_size={BATCH}", f"algo.agent.num_updates={load.num_updates}")
