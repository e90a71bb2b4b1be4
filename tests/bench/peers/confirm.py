"""Plays a run's best policy of ours in Gymnasium's own environment, and prints the mean return.

`python -m tests.bench.peers.confirm RUN ENV_ID EPISODES`. Our evaluator plays in our own worlds, which are tested to
be Gymnasium's step by step; this says so again for the very policy that passed the threshold.
"""

from __future__ import annotations

import json
import sys

import gymnasium
import numpy as np

from motrix_rl.checkpoint.policy import choose_checkpoint, load_policy
from motrix_rl.runs import resolve_run
from tests.bench.peers.trainers.recording import mean_return


def confirm(run: str, env_id: str, episodes: int) -> float:
    """Mean return of the run's best policy, without noise."""
    policy, _ = load_policy(choose_checkpoint(resolve_run(run, ".")))

    def act(observations: np.ndarray) -> np.ndarray:
        actions = np.empty((len(observations), policy.action_dim), np.float32)
        policy.act(observations.astype(np.float32), actions, deterministic=True, generator=None)
        return actions

    return mean_return([gymnasium.make(env_id) for _ in range(episodes)], act)


if __name__ == "__main__":
    print(json.dumps(confirm(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
