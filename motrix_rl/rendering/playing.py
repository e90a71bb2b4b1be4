"""One world, one policy, whole episodes, and somebody who looks after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from motrix_rl.envs.base import BatchEnv, StepBuffers
from motrix_rl.envs.evaluation import Act


@dataclass(frozen=True)
class PlayedEpisode:
    """How an episode went.

    Attributes:
        undiscounted: sum of rewards.
        length: control steps.
        ending: terminated, truncated, or cut (a number was not finite).
    """

    undiscounted: float
    length: int
    ending: str


def play_episodes(
    env: BatchEnv, act: Act, episodes: int, seed: int, look: Callable[[int], bool]
) -> list[PlayedEpisode]:
    """Plays whole episodes in world 0.

    Args:
        env: is reset first; all of its worlds are stepped, the first one counts.
        act: the policy.
        episodes: number of episodes.
        seed: start of the environment's random streams.
        look: called with the number of steps so far, after each reset and step; False ends the play. The
            state after an episode's last step is never seen: by then the world has been reset.

    Returns:
        The episodes that came to their end.
    """
    buffers = StepBuffers.allocate(env.env_spec, env.num_envs)
    action = np.zeros((env.num_envs, env.env_spec.action_dim), np.float32)
    played: list[PlayedEpisode] = []
    total, length, steps = 0.0, 0, 0
    env.reset_into(seed, buffers.obs, buffers.critic_obs)
    while len(played) < episodes and look(steps):
        act(buffers.obs, action)
        env.step_into(action, buffers)
        total += float(buffers.reward[0])
        length += 1
        steps += 1
        ending = next(
            (name for name in ("terminated", "truncated", "cut") if getattr(buffers, name)[0]), None
        )
        if ending is not None:
            played.append(PlayedEpisode(total, length, ending))
            total, length = 0.0, 0
    return played
