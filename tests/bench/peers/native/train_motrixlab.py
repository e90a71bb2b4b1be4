"""Trains the walking robot with MotrixLab's asynchronous FastSAC, and keeps a record of what it has done so far.

The record is `record.jsonl` in the working directory: lines with the Unix time, the updates and the environment steps
by then, told by the learner after its updates, the first at once and then some a second.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path

if __name__ == "__main__":
    # Sets up OpenMP as `mxlab train` does, before torch is loaded; the workers inherit that. `motrix_rl` is here
    # MotrixLab's package, which has the name of ours.
    from motrix_rl.commands import train as command

# The learner's process loads this file again, and there the record is kept.
from motrix_rl_builtin.fastsac.async_impl.learner import Learner  # isort: skip

RECORD = "record.jsonl"
#: Seconds between two lines, at least.
EVERY_S = 0.1
FOREVER = 10**9
_publish_if_due = Learner.publish_if_due
_recorded = 0.0


def _publish_and_record(learner: Learner) -> None:
    """What the learner calls after every `num_updates` updates."""
    global _recorded
    now = time.time()
    if now - _recorded >= EVERY_S:
        _recorded = now
        done = {
            "time": now,
            "updates": learner.update_idx,
            "generations": learner.control.collector_steps / learner.control.num_collectors,
        }
        with open(RECORD, "a", encoding="utf-8") as record:
            record.write(json.dumps(done) + "\n")
    _publish_if_due(learner)


Learner.publish_if_due = _publish_and_record


def _config(num_envs: int, seed: int, settings: list[str]):
    """MotrixLab's defaults for `mxlab train` with what is given."""
    from hydra import compose, initialize_config_module
    from walking_motrixlab import TASK

    from motrix_rl.cli import to_typed_config
    from motrix_rl.config import TaskMeta, TrainConfig

    overrides = [
        "+algo_base@algo=motrix.fastsac",
        f"num_envs={num_envs}",
        "play_num_envs=1",
        f"seed={seed}",
        f"algo.trainer.num_learning_iterations={FOREVER}",
        *settings,
    ]
    with initialize_config_module("motrix_rl.configs", version_base=None):
        composed = compose("train", overrides=overrides)
    composed.task = TaskMeta(env=TASK, rllib="motrix", algo="fastsac")
    return to_typed_config(composed, TrainConfig)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--robot", type=Path, required=True, help="directory of the robot's files")
    parser.add_argument("--num-envs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("settings", nargs="*", help="key=value, as for `mxlab train`")
    given = parser.parse_args()

    from walking_motrixlab import register

    register(given.robot)
    config = _config(given.num_envs, given.seed, given.settings)
    # Asked to end, it takes its own way out of Ctrl-C, which ends its workers and removes their semaphores.
    signal.signal(signal.SIGTERM, _interrupt)
    command.run(config)


if __name__ == "__main__":
    main()
