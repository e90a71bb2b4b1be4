"""Evaluates a policy over whole episodes, counting short and long ones alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import BatchEnv, Float32, StepBuffers

Act = Callable[[Float32, Float32], None]
"""Writes actions [E, A] for observations [E, O], both float32."""


@dataclass(frozen=True)
class EvalResult:
    """Episodes of one evaluation, ordered by world and then by time.

    Attributes:
        returns: [episodes] float64, sums of undiscounted rewards.
        lengths: [episodes] int64, control steps.
        return_mean: mean of `returns`.
        return_ci95: half width of the 95 % confidence interval of that mean (Student's t); NaN for fewer
            than two episodes.
        length_mean: mean of `lengths`.
        episodes: number of episodes.
        cut_episodes: how many of them ended because a number was not finite.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    return_mean: float
    return_ci95: float
    length_mean: float
    episodes: int
    cut_episodes: int = 0


@dataclass
class _Tally:
    """What has been seen of one world."""

    quota: int
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def evaluate(
    env: BatchEnv,
    act: Act,
    episodes: int,
    seed: int,
    *,
    should_stop: Callable[[], bool] | None = None,
) -> EvalResult:
    """Runs a policy for a number of whole episodes.

    How many episodes a world contributes is fixed before the first step (`episodes` divided evenly, its
    first ones). Counting whichever episodes end first would favour short ones.

    Args:
        env: the worlds; all are reset. With fewer episodes than worlds, the first `episodes` worlds count.
        act: the policy.
        episodes: number of episodes, at least 1.
        seed: start of the environment's random streams.
        should_stop: asked after every step; where it says True, the episodes that are complete count.

    Raises:
        ValueError: `episodes` is below 1.
        WorldError: an environment raised.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    share, extra = divmod(episodes, env.num_envs)
    tallies = [_Tally(share + (1 if world < extra else 0)) for world in range(env.num_envs)]
    buffers = StepBuffers.allocate(env.env_spec, env.num_envs)
    action = np.zeros((env.num_envs, env.env_spec.action_dim), np.float32)
    returns = np.zeros(env.num_envs)
    lengths = np.zeros(env.num_envs, np.int64)
    open_episodes, cut_episodes = episodes, 0
    env.reset_into(seed, buffers.obs, buffers.critic_obs)
    while open_episodes:
        act(buffers.obs, action)
        env.step_into(action, buffers)
        returns += buffers.reward
        lengths += 1
        ended = np.flatnonzero(buffers.terminated | buffers.truncated | buffers.cut)
        for world in ended.tolist():
            tally = tallies[world]
            if len(tally.returns) < tally.quota:
                tally.returns.append(float(returns[world]))
                tally.lengths.append(int(lengths[world]))
                open_episodes -= 1
                cut_episodes += int(buffers.cut[world])
        returns[ended] = 0.0
        lengths[ended] = 0
        if should_stop is not None and should_stop():
            break
    return _summarise(tallies, cut_episodes)


def _summarise(tallies: list[_Tally], cut_episodes: int) -> EvalResult:
    returns = np.asarray([value for tally in tallies for value in tally.returns], np.float64)
    lengths = np.asarray([value for tally in tallies for value in tally.lengths], np.int64)
    count = len(returns)
    half_width = math.nan
    if count > 1:
        half_width = student_t_975(count - 1) * float(returns.std(ddof=1)) / math.sqrt(count)
    return EvalResult(
        returns=returns,
        lengths=lengths,
        return_mean=float(returns.mean()) if count else math.nan,
        return_ci95=half_width,
        length_mean=float(lengths.mean()) if count else math.nan,
        episodes=count,
        cut_episodes=cut_episodes,
    )


def student_t_975(degrees: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution, to 3 % at 2 degrees and 0.1 % above 5.

    Exact for one degree; otherwise the expansion in 1/degrees (Abramowitz and Stegun, 26.7.5).
    """
    if degrees == 1:
        return 12.706
    z = 1.959964
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / degrees**power for power, term in enumerate(terms))
