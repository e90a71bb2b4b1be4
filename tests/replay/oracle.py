"""A replay that keeps everything in lists and walks every window step by step, and streams to feed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


@dataclass
class Shard:
    """A `ShardLike` of numpy arrays; final rows are compact, as in a slot."""

    obs: Any
    critic_obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    cut: Any
    final_index: Any
    final_obs: Any
    final_critic_obs: Any
    num_final: int
    num_envs: int

    def tensors(self) -> Shard:
        """The same as tensors."""
        names = [name for name in self.__dataclass_fields__ if name not in ("num_final", "num_envs")]
        values = {name: getattr(self, name) for name in names}
        values = {name: None if x is None else torch.from_numpy(x) for name, x in values.items()}
        return Shard(**values, num_final=self.num_final, num_envs=self.num_envs)

    def columns(self, lo: int, hi: int) -> Shard:
        """The part of environments `[lo, hi)`."""
        names = ("obs", "critic_obs", "action", "reward", "terminated", "truncated", "cut")
        values = {name: getattr(self, name) for name in names}
        values = {name: None if x is None else x[lo:hi] for name, x in values.items()}
        index = self.final_index[: self.num_final]
        inside = np.flatnonzero((index >= lo) & (index < hi))
        finals = {"final_obs": self.final_obs[inside], "final_critic_obs": None}
        if self.final_critic_obs is not None:
            finals["final_critic_obs"] = self.final_critic_obs[inside]
        moved = (index[inside] - lo).astype(np.int32)
        return Shard(**values, final_index=moved, **finals, num_final=inside.size, num_envs=hi - lo)


def random_generation(
    rng: np.random.Generator,
    envs: int,
    *,
    obs_dim: int = 2,
    action_dim: int = 1,
    critic_obs_dim: int | None = None,
    end: float = 0.2,
    cut: float = 0.1,
) -> Shard:
    """One vector step in which much ends (in both ways at once, too) or is cut; unused final rows are NaN."""
    terminated = (rng.random(envs) < end / 2).astype(np.uint8)
    truncated = (rng.random(envs) < end / 2).astype(np.uint8)
    broken = (rng.random(envs) < cut).astype(np.uint8)
    terminated[broken == 1] = 0
    truncated[broken == 1] = 0
    index = np.flatnonzero(terminated | truncated).astype(np.int32)

    def values(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def finals(dim: int) -> np.ndarray:
        rows = np.full((envs, dim), np.nan, np.float32)
        rows[: index.size] = values(index.size, dim)
        return rows

    padded = np.full(envs, -1, np.int32)
    padded[: index.size] = index
    return Shard(
        obs=values(envs, obs_dim),
        critic_obs=None if critic_obs_dim is None else values(envs, critic_obs_dim),
        action=values(envs, action_dim),
        reward=np.where(broken, 0, values(envs)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        cut=broken,
        final_index=padded,
        final_obs=finals(obs_dim),
        final_critic_obs=None if critic_obs_dim is None else finals(critic_obs_dim),
        num_final=index.size,
        num_envs=envs,
    )


@dataclass
class Window:
    """What a sample must be."""

    obs: np.ndarray
    action: np.ndarray
    reward: float
    discount: float
    bootstrap: float
    weight: float
    next_obs: np.ndarray
    critic_obs: np.ndarray | None
    next_critic_obs: np.ndarray | None


@dataclass
class Oracle:
    """Every generation ever written, and who has lost a final observation to a pool of `pool` entries."""

    capacity: int
    n_step: int
    gamma: float
    pool: int
    rows: list[Shard] = field(default_factory=list)
    cuts: set[tuple[int, int]] = field(default_factory=set)
    puts: list[tuple[int, int]] = field(default_factory=list)
    overflow: int = 0

    def append(self, shard: Shard) -> None:
        self.rows.append(shard)
        time = len(self.rows) - 1
        for env in range(shard.num_envs):
            if shard.truncated[env] and not shard.terminated[env] and not shard.cut[env]:
                self.puts.append((time, env))
                # Entry k goes where entry k - pool was; that one's row, if still there, has lost it.
                if len(self.puts) > self.pool:
                    lost = self.puts[len(self.puts) - 1 - self.pool]
                    if lost[0] > time - self.capacity:
                        self.cuts.add(lost)
                        self.overflow += 1

    def mark_last_cut(self, lo: int, hi: int) -> None:
        last = len(self.rows) - 1
        for env in range(lo, hi):
            if not self.ended(last, env):
                self.cuts.add((last, env))

    def starts(self) -> list[tuple[int, int]]:
        """Every (time, env) a window may start on."""
        last = len(self.rows) - 1
        times = range(max(0, last - self.capacity + 1), last - self.n_step + 1)
        return [(time, env) for time in times for env in range(self.rows[0].num_envs)]

    def is_cut(self, time: int, env: int) -> bool:
        return bool(self.rows[time].cut[env]) or (time, env) in self.cuts

    def ended(self, time: int, env: int) -> bool:
        row = self.rows[time]
        return bool(row.terminated[env] or row.truncated[env]) and not row.cut[env]

    def window(self, time: int, env: int) -> Window:
        """Walks from (time, env) until n rewards, an end, or a cut row."""
        start = self.rows[time]
        window = Window(
            start.obs[env],
            start.action[env],
            0.0,
            1.0,
            1.0,
            0.0 if self.is_cut(time, env) else 1.0,
            start.obs[env],
            None if start.critic_obs is None else start.critic_obs[env],
            None if start.critic_obs is None else start.critic_obs[env],
        )
        for step in range(time, time + self.n_step):
            if self.is_cut(step, env):
                break
            window.reward += window.discount * float(self.rows[step].reward[env])
            window.discount *= self.gamma
            follow = self.rows[step + 1]
            window.next_obs = follow.obs[env]
            window.next_critic_obs = None if follow.critic_obs is None else follow.critic_obs[env]
            if self.ended(step, env):
                self._end(window, step, env)
                break
        return window

    def _end(self, window: Window, time: int, env: int) -> None:
        row = self.rows[time]
        if row.terminated[env]:
            window.bootstrap = 0.0
            return
        position = list(row.final_index[: row.num_final]).index(env)
        window.next_obs = row.final_obs[position]
        if row.final_critic_obs is not None:
            window.next_critic_obs = row.final_critic_obs[position]
