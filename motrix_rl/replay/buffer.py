"""Ring of transitions `[time, env, dim]` with one copy of every observation.

Row `t` of column `e` holds obs, action, reward and flags of one step. Its successor observation is not stored
again: `_successor[t, e]` is the index, in the same observation storage, of the next row's obs, or of an entry
of the final-observation pool behind the ring. Writer and reader are one process on one stream.

A row is `cut` when its outcome is unknown (a restart, a resume, a non-finite value, or its final observation
was evicted from the pool). It is its own successor.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motrix_rl.normalization.running import as_tensor
from motrix_rl.replay.batch import Batch, ShardLike
from motrix_rl.replay.copying import host, take, write
from motrix_rl.replay.finals import FinalPool

log = logging.getLogger(__name__)

TERMINATED, TRUNCATED, CUT = 1, 2, 4
OVERFLOW_WARN_SHARE = 1e-3


class ReplayBuffer:
    """Uniform n-step replay over vector steps.

    Args:
        num_envs: Columns N.
        capacity: Time rows T; holds `T * N` transitions.
        obs_dim: Size of the actor's observation.
        critic_obs_dim: Size of the critics' own observation, or None where they see the actor's.
        action_dim: Size of an action.
        n_step: Rewards in one window.
        gamma: Discount per step.
        device: Where the ring lies.
        final_pool_size: Entries for final observations of truncated episodes; default: room for episodes of
            50 steps and one simultaneous truncation of all environments.
        poison: Fill the storage with NaN, so that a read of an unwritten row shows (tests).

    Attributes:
        cut_by_overflow: Rows that lost their final observation to a full pool.
        generation: Generation that `append` expects next; -1 while anything is accepted.

    Raises:
        ValueError: Sizes that cannot hold one window.
    """

    def __init__(
        self,
        *,
        num_envs: int,
        capacity: int,
        obs_dim: int,
        critic_obs_dim: int | None,
        action_dim: int,
        n_step: int,
        gamma: float,
        device: torch.device | str = "cpu",
        final_pool_size: int | None = None,
        poison: bool = False,
    ) -> None:
        if capacity <= n_step:
            raise ValueError(
                f"replay of {capacity} time rows cannot hold a window of n_step={n_step}: "
                f"buffer_size must be at least {num_envs * (n_step + 1)} for {num_envs} environments"
            )
        self.num_envs, self.capacity, self.n_step, self.gamma = num_envs, capacity, n_step, gamma
        self.obs_dim, self.critic_obs_dim, self.action_dim = obs_dim, critic_obs_dim, action_dim
        self.device = torch.device(device)
        self.cut_by_overflow = 0
        self.appended = 0
        self.generation = -1
        self._size = 0
        self._next_row = 0
        self._warned = False

        rows = capacity * num_envs
        pool = default_pool_size(num_envs, capacity) if final_pool_size is None else final_pool_size
        self._rows = rows
        self._pool = FinalPool(pool)
        fill = float("nan") if poison else 0.0

        def storage(*shape: int) -> Tensor:
            # Zeros come untouched from the system: pages are taken as rows are written, not at the start.
            if not poison:
                return torch.zeros(shape, dtype=torch.float32, device=self.device)
            return torch.full(shape, fill, dtype=torch.float32, device=self.device)

        self._obs = storage(rows + pool, obs_dim)
        self._critic_obs = None if critic_obs_dim is None else storage(rows + pool, critic_obs_dim)
        self._action = storage(rows, action_dim)
        self._reward = storage(rows)
        self._flags = torch.zeros(rows, dtype=torch.uint8, device=self.device)
        self._successor = torch.zeros(rows, dtype=torch.int64, device=self.device)
        powers = torch.tensor([gamma**k for k in range(n_step + 1)], dtype=torch.float64)
        self._gamma_powers = powers.to(torch.float32).to(self.device)
        self._steps = torch.arange(n_step, device=self.device)[:, None] * num_envs

    # ------------------------------------------------------------------ writing

    def append(self, generation: int, shards: Sequence[ShardLike]) -> None:
        """Writes one complete generation; shard i fills the columns after those of the shards before it.

        Args:
            generation: Absolute number of the vector step; one more than that of the call before.
            shards: Together `num_envs` environments, in column order.

        Raises:
            ValueError: A generation out of order, a wrong number of environments, a non-finite value, or a
                truncated row without its final observation.
        """
        if self.generation >= 0 and generation != self.generation:
            raise ValueError(f"replay expected generation {self.generation}, got {generation}")
        widths = sum(shard.num_envs for shard in shards)
        if widths != self.num_envs:
            raise ValueError(f"shards hold {widths} environments, the replay has {self.num_envs}")
        base = self._next_row * self.num_envs
        following = (base + self.num_envs) % self._rows
        self._successor[base : base + self.num_envs] = torch.arange(
            following, following + self.num_envs, device=self.device
        )
        lo = base
        for shard in shards:
            self._write_shard(lo, shard)
            lo += shard.num_envs
        self._next_row = (self._next_row + 1) % self.capacity
        self._size = min(self._size + 1, self.capacity)
        self.generation = generation + 1
        self.appended += self.num_envs
        self._warn_overflow()

    def _write_shard(self, lo: int, shard: ShardLike) -> None:
        """Copies one shard to storage rows from `lo` on."""
        hi = lo + shard.num_envs
        terminated, truncated, cut = (host(x) != 0 for x in (shard.terminated, shard.truncated, shard.cut))
        truncated = truncated & ~terminated & ~cut
        terminated = terminated & ~cut
        flags = terminated * np.uint8(TERMINATED) + truncated * np.uint8(TRUNCATED) + cut * np.uint8(CUT)
        write(self._flags[lo:hi], flags.astype(np.uint8))
        write(self._obs[lo:hi], shard.obs, "obs", lo)
        write(self._action[lo:hi], shard.action, "action", lo)
        write(self._reward[lo:hi], shard.reward, "reward", lo)
        if self._critic_obs is not None:
            write(self._critic_obs[lo:hi], shard.critic_obs, "critic_obs", lo)
        if cut.any():
            broken = as_tensor(lo + np.flatnonzero(cut), self.device)
            self._successor[broken] = broken
        count = int(np.count_nonzero(truncated))
        if count:
            self._write_finals(lo, shard, truncated, count)

    def _write_finals(self, lo: int, shard: ShardLike, truncated: np.ndarray, count: int) -> None:
        """Stores the final observations of truncated rows and points their successors at them."""
        index = host(shard.final_index)[: shard.num_final].astype(np.int64)
        chosen = np.flatnonzero(truncated[index])
        if chosen.size != count:
            raise ValueError(f"{count} truncated rows, but final observations of {chosen.size} of them")
        # Absolute numbers: the rows being written are the newest num_envs, so the oldest left are these.
        rows = self.appended + (lo - self._next_row * self.num_envs) + index[chosen]
        kept, entries, evicted = self._pool.put(rows, max(0, self.appended + self.num_envs - self._rows))
        if evicted.size:
            live = as_tensor(evicted % self._rows, self.device)
            self._flags[live] = CUT
            self._successor[live] = live
            self.cut_by_overflow += int(evicted.size)
        if not kept.size:
            return
        source = as_tensor(chosen[kept], "cpu")
        target = as_tensor(entries + self._rows, self.device)
        self._obs[target] = take(shard.final_obs, source, self.device, "final_obs")
        if self._critic_obs is not None:
            self._critic_obs[target] = take(shard.final_critic_obs, source, self.device, "final_critic_obs")
        self._successor[as_tensor(rows[kept] % self._rows, self.device)] = target

    def mark_last_cut(self, env_lo: int, env_hi: int) -> None:
        """Makes the newest row of columns `[env_lo, env_hi)` cut: what follows does not continue it.

        An ended row is complete without what follows and stays as it is.
        """
        if not self._size:
            return
        base = (self._next_row - 1) % self.capacity * self.num_envs
        columns = slice(base + env_lo, base + env_hi)
        rows = torch.arange(columns.start, columns.stop, device=self.device)
        flags, successor = self._flags[columns], self._successor[columns]
        goes_on = flags == 0
        flags.masked_fill_(goes_on, CUT)
        successor.copy_(torch.where(goes_on, rows, successor))

    def _warn_overflow(self) -> None:
        if self._warned or self.cut_by_overflow <= OVERFLOW_WARN_SHARE * self.appended:
            return
        self._warned = True
        log.warning(
            "%d of %d transitions lost their final observation: more episodes were truncated than the pool "
            "of %d holds, and those rows are now cut (weight 0)",
            self.cut_by_overflow,
            self.appended,
            self._pool.size,
        )

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """Whether there is a whole window to sample."""
        return self._size > self.n_step

    @property
    def size(self) -> int:
        """Transitions held."""
        return self._size * self.num_envs

    @property
    def num_startable(self) -> int:
        """Rows a window can start on: all but the newest `n_step` vector steps."""
        return max(0, self._size - self.n_step) * self.num_envs

    def draw(self, batch_size: int, generator: torch.Generator | None) -> Tensor:
        """Storage rows `[batch_size]` int64, uniform with replacement over all startable (time, env)."""
        assert self.ready, "sample() before the replay holds a window"
        rows = torch.randint(self.num_startable, (batch_size,), generator=generator, device=self.device)
        if self._size == self.capacity and self._next_row:
            rows.add_(self._next_row * self.num_envs).remainder_(self._rows)
        return rows

    def sample(self, batch_size: int, generator: torch.Generator | None, out: Batch | None = None) -> Batch:
        """A batch of its own for each update, uniform over all valid (time, env).

        Args:
            batch_size: Number of windows B.
            generator: Random numbers, on the replay's device.
            out: Batch to write into; allocated if None.
        """
        return self.gather(self.draw(batch_size, generator), out)

    def gather(self, rows: Tensor, out: Batch | None = None) -> Batch:
        """The windows that start on storage rows `rows` `[B]`."""
        size = rows.shape[0]
        if out is None:
            out = Batch.allocate(size, self.obs_dim, self.action_dim, self.critic_obs_dim, self.device)
        pair = torch.empty((2, size), dtype=torch.int64, device=self.device)
        pair[0] = rows
        if self.n_step == 1:
            self._gather_one(rows, pair[1], out)
        else:
            self._gather_window(rows, pair[1], out)
        index = pair.view(-1)
        torch.index_select(self._obs, 0, index, out=out.observations.view(2 * size, -1))
        if self._critic_obs is not None:
            assert out.critic_observations is not None
            torch.index_select(self._critic_obs, 0, index, out=out.critic_observations.view(2 * size, -1))
        torch.index_select(self._action, 0, rows, out=out.action)
        return out

    def _gather_one(self, rows: Tensor, successor: Tensor, out: Batch) -> None:
        torch.index_select(self._successor, 0, rows, out=successor)
        torch.index_select(self._reward, 0, rows, out=out.reward)
        flags = self._flags.index_select(0, rows)
        torch.ne(flags, TERMINATED, out=out.bootstrap)
        torch.ne(flags, CUT, out=out.weight)
        out.discount.fill_(self.gamma)

    def _gather_window(self, rows: Tensor, successor: Tensor, out: Batch) -> None:
        """Sums rewards until the window ends: at n, at an end (inclusive), or before a cut row."""
        index = (self._steps + rows).remainder_(self._rows)
        flags = self._flags[index]
        cut = flags == CUT
        # reached[k]: every row before k goes on to the next one.
        reached = torch.ones_like(cut)
        reached[1:] = (flags[:-1] != 0).cumsum(0) == 0
        counted = reached & ~cut
        out.reward.copy_((self._reward[index] * counted * self._gamma_powers[:-1, None]).sum(0))
        length = counted.sum(0)
        torch.index_select(self._gamma_powers, 0, length, out=out.discount)
        last = (length - 1).clamp_(min=0)[None]
        last_row = index.gather(0, last)[0]
        torch.index_select(self._successor, 0, last_row, out=successor)
        torch.ne(flags.gather(0, last)[0], TERMINATED, out=out.bootstrap)
        torch.ne(flags[0], CUT, out=out.weight)

    # ------------------------------------------------------------------ sizes and state

    @staticmethod
    def estimate_nbytes(
        *,
        num_envs: int,
        capacity: int,
        obs_dim: int,
        critic_obs_dim: int | None,
        action_dim: int,
        final_pool_size: int | None = None,
    ) -> int:
        """Bytes a buffer of these sizes will take, before it is made."""
        rows = num_envs * capacity
        pool = default_pool_size(num_envs, capacity) if final_pool_size is None else final_pool_size
        per_row = 4 * (action_dim + 1) + 1 + 8
        return (rows + pool) * 4 * (obs_dim + (critic_obs_dim or 0)) + rows * per_row + pool * 8

    @property
    def nbytes(self) -> int:
        """Bytes this buffer takes when full."""
        return self.estimate_nbytes(
            num_envs=self.num_envs,
            capacity=self.capacity,
            obs_dim=self.obs_dim,
            critic_obs_dim=self.critic_obs_dim,
            action_dim=self.action_dim,
            final_pool_size=self._pool.size,
        )

    def _shape(self) -> dict[str, int]:
        return {
            "num_envs": self.num_envs,
            "capacity": self.capacity,
            "obs_dim": self.obs_dim,
            "critic_obs_dim": self.critic_obs_dim or 0,
            "action_dim": self.action_dim,
            "final_pool_size": self._pool.size,
        }

    def state_dict(self) -> dict[str, Any]:
        """The filled part of the ring and of the pool, as tensors on the host."""
        rows, used = self.size, self._pool.used
        pool = slice(self._rows, self._rows + used)
        state: dict[str, Any] = {
            "shape": self._shape(),
            "size": self._size,
            "next_row": self._next_row,
            "generation": self.generation,
            "appended": self.appended,
            "cut_by_overflow": self.cut_by_overflow,
            "pool": self._pool.state_dict(),
        }
        for name in ("_action", "_reward", "_flags", "_successor"):
            state[name[1:]] = getattr(self, name)[:rows].to("cpu", copy=True)
        for name in ("_obs", "_critic_obs"):
            whole = getattr(self, name)
            if whole is not None:
                state[name[1:]] = whole[:rows].to("cpu", copy=True)
                state[name[1:] + "_pool"] = whole[pool].to("cpu", copy=True)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`.

        Raises:
            ValueError: The state is of a buffer of other sizes.
        """
        mine, theirs = self._shape(), state["shape"]
        if mine != theirs:
            wrong = ", ".join(
                f"{k} {theirs.get(k)} (here {mine[k]})" for k in mine if mine[k] != theirs.get(k)
            )
            raise ValueError(f"saved replay does not fit: {wrong}; resume without it or with the same sizes")
        self._size, self._next_row = state["size"], state["next_row"]
        self.generation, self.appended = state["generation"], state["appended"]
        self.cut_by_overflow = state["cut_by_overflow"]
        self._pool.load_state_dict(state["pool"])
        rows, used = self.size, self._pool.used
        for name in ("_action", "_reward", "_flags", "_successor"):
            getattr(self, name)[:rows].copy_(state[name[1:]])
        for name in ("_obs", "_critic_obs"):
            whole = getattr(self, name)
            if whole is not None:
                whole[:rows].copy_(state[name[1:]])
                whole[self._rows : self._rows + used].copy_(state[name[1:] + "_pool"])


def default_pool_size(num_envs: int, capacity: int) -> int:
    """Final observations to keep: episodes of 50 steps, plus all environments truncated in one step."""
    return (capacity // 50 + 1) * num_envs
