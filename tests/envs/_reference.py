"""Gymnasium's own environments beside ours, driven from the same states by the same actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import StepBuffers
from motrix_rl.envs.mujoco.base import MujocoBatchEnv
from motrix_rl.tasks.registry import make_env

GYMNASIUM_IDS = {
    "halfcheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
    "humanoid": "Humanoid-v5",
    "inverted-double-pendulum": "InvertedDoublePendulum-v5",
    "reacher": "Reacher-v5",
}


def make_ours(
    task: str, num_envs: int, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> MujocoBatchEnv:
    arguments = {"seed": 0, "num_threads": 2, **kwargs}
    env = make_env(task, "mujoco", num_envs, options=options, **arguments)
    assert isinstance(env, MujocoBatchEnv)
    return env


def make_theirs(task: str, options: Mapping[str, Any] | None = None) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(GYMNASIUM_IDS[task], disable_env_checker=True, **(options or {}))


def put_state(env: gymnasium.Env[Any, Any], qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> Any:
    """Starts an episode of Gymnasium's environment at a state, and returns its observation."""
    env.reset(seed=0)
    inner: Any = env.unwrapped
    # As after construction: without this the solver would start from the reset's own solution.
    mujoco.mj_resetData(inner.model, inner.data)
    inner.set_state(qpos, qvel)
    return inner._get_obs()


def random_states(env: MujocoBatchEnv, rng: np.random.Generator) -> tuple[Any, Any]:
    """Returns positions and velocities well away from the initial state, [E, nq] and [E, nv]."""
    count, model = env.num_envs, env.model
    spread = 0.3 * rng.uniform(size=(count, 1))
    qpos = env.qpos + spread * rng.uniform(-1, 1, (count, model.nq))
    qvel = 5 * spread * rng.normal(size=(count, model.nv))
    return qpos, qvel


@dataclass
class Comparison:
    """What a run side by side has covered."""

    terminated: int = 0
    truncated: int = 0
    max_reward_error: float = 0.0
    cut: int = 0


def compare(
    task: str, options: Mapping[str, Any] | None, num_envs: int, steps: int, seed: int, *, spread: bool
) -> Comparison:
    """Steps both side by side and asserts that observations and ends are equal and rewards too.

    Observations and ends: to the bit, as float32. Rewards: to 1 in the last place of float32 (sums over
    worlds and sums over one world may be taken in another order).
    """
    rng = np.random.default_rng(seed)
    ours = make_ours(task, num_envs, options, seed=seed)
    theirs = [make_theirs(task, options) for _ in range(num_envs)]
    out = StepBuffers.allocate(ours.env_spec, num_envs)
    ours.reset_into(None, out.obs)
    if spread:
        worlds = np.arange(num_envs, dtype=np.int32)
        ours.set_state(worlds, *random_states(ours, rng))
        ours.write_obs(slice(None), out.obs)
    for world, env in enumerate(theirs):
        _equal(put_state(env, ours.qpos[world], ours.qvel[world]), out.obs[world], f"start of {world}")
    seen = Comparison()
    low, high = np.asarray(ours.env_spec.action_low), np.asarray(ours.env_spec.action_high)
    for step in range(steps):
        # A little beyond the bounds, so that clipping is compared as well.
        action = (1.1 * rng.uniform(low, high, (num_envs, low.size))).astype(np.float32)
        count = ours.step_into(action, out)
        finals = dict(zip(out.final_index[:count].tolist(), out.final_obs[:count], strict=True))
        for world, env in enumerate(theirs):
            obs, reward, terminated, truncated, _ = env.step(action[world])
            where = f"{task}, step {step}, world {world}"
            if out.cut[world]:
                seen.cut += 1
            else:
                _equal(obs, finals.get(world, out.obs[world]), where)
                error = abs(np.float32(reward) - out.reward[world])
                assert error <= np.spacing(max(abs(np.float32(reward)), np.float32(1))), where
                seen.max_reward_error = max(seen.max_reward_error, float(error))
                assert bool(terminated) == bool(out.terminated[world]), where
                assert bool(truncated and not terminated) == bool(out.truncated[world]), where
            if terminated or truncated or out.cut[world]:
                seen.terminated += int(terminated)
                seen.truncated += int(truncated)
                start = put_state(env, ours.qpos[world], ours.qvel[world])
                _equal(start, out.obs[world], where + ", reset")
    ours.close()
    return seen


def _equal(theirs: Any, ours: Any, where: str) -> None:
    np.testing.assert_array_equal(np.asarray(theirs).astype(np.float32), ours, err_msg=where)
