"""The learner's side of FastSAC: one replica of everything that is trained, and its update.

Nothing in `update` waits for the device; `metrics` is the only method that does.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import losses
from motrix_rl.algorithms.fastsac.config import FastSACConfig
from motrix_rl.algorithms.fastsac.flat import FlatGroup, Reducer, bind_parameters
from motrix_rl.algorithms.fastsac.networks import ActionScaling, EnsembleCritic
from motrix_rl.algorithms.fastsac.objectives import Networks
from motrix_rl.algorithms.fastsac.policy import make_actor
from motrix_rl.algorithms.fastsac.statistics import AgentStatistics
from motrix_rl.algorithms.fastsac.update import Given, Groups, Preparation, Update
from motrix_rl.normalization.running import RewardScaler, RunningMeanStd

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.host_objectives import HostObjectives
    from motrix_rl.algorithms.fastsac.objectives import AutogradObjectives
    from motrix_rl.envs.spec import EnvSpec
    from motrix_rl.replay.batch import Batch
    from motrix_rl.replay.buffer import ReplayBuffer

# Noise of this many updates is drawn at once: enough to hide the calls, little enough to hold.
NOISE_CHUNK = 64


class FastSACAgent:
    """Networks, optimisers, temperature and statistics of one rank.

    Args:
        config: Settings; `batch_size` counts over all ranks.
        env_spec: Sizes and action bounds.
        device: Where everything lies.
        init_seed: Of the initial weights; the same on every rank.
        sample_seed: Of batches and noise; another on every rank.
        dtype: Of networks and optimisers (float64 in tests).
        reducer: Collectives of the ranks; None or one rank: none is issued.

    Attributes:
        updates_done: Critic updates over the whole run, skipped ones included.
        batch_size: Transitions of this rank in one update.
        policy_size: Length of the published vector.

    Raises:
        ValueError: The batch does not divide over the ranks.
    """

    def __init__(
        self,
        config: FastSACConfig,
        env_spec: EnvSpec,
        *,
        device: torch.device | str,
        init_seed: int,
        sample_seed: int,
        dtype: torch.dtype = torch.float32,
        reducer: Reducer | None = None,
    ) -> None:
        self.config, self.env_spec = config, env_spec
        self.device, self.dtype = torch.device(device), dtype
        self.reducer = reducer if reducer is not None and reducer.world_size > 1 else None
        ranks = 1 if self.reducer is None else self.reducer.world_size
        if config.batch_size % ranks:
            below = config.batch_size // ranks * ranks
            raise ValueError(
                f"batch_size {config.batch_size} does not divide over {ranks} learners; "
                f"use {below or ranks} or {below + ranks}"
            )
        self.batch_size = config.batch_size // ranks
        self.updates_done = 0
        self._build_networks(init_seed)
        self.statistics = self._build_statistics()
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(sample_seed)
        self.target_entropy = losses.target_entropy(config, env_spec.action_low, env_spec.action_high)
        networks = Networks(self.actor, self.critic, self.target, self.scaling, self.log_alpha)
        groups = Groups(self.actor_group, self.critic_group, self.target_flat)
        self._update = Update(config, networks, groups, self.statistics, self.target_entropy, self.reducer)
        self.policy_size = self.actor_group.size + 2 * env_spec.obs_dim
        self._batch: Batch | None = None

    def _build_networks(self, init_seed: int) -> None:
        config, spec = self.config, self.env_spec
        # Always drawn on the host in float32: the same seed gives the same weights on every device and type.
        weights = torch.Generator().manual_seed(init_seed)
        self.actor = make_actor(config, spec, weights)
        self.critic = EnsembleCritic(
            spec.critic_obs_dim or spec.obs_dim,
            spec.action_dim,
            config.critic_hidden_dim,
            config.num_q_networks,
            config.num_atoms,
            weights,
        )
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.scaling = ActionScaling(spec.action_low, spec.action_high, self.dtype).to(self.device)
        fp16 = config.amp and config.amp_dtype == "fp16"
        shared: dict[str, Any] = {
            "weight_decay": config.weight_decay,
            "betas": (config.adam_beta1, config.adam_beta2),
            "max_grad_norm": config.max_grad_norm,
            "device": self.device,
            "dtype": self.dtype,
            "fp16": fp16,
        }
        self.actor_group = FlatGroup(self.actor, learning_rate=config.actor_learning_rate, **shared)
        self.critic_group = FlatGroup(
            self.critic,
            extra=1,
            learning_rate=config.critic_learning_rate,
            extra_learning_rate=config.alpha_learning_rate if config.use_autotune else 0.0,
            **shared,
        )
        self.log_alpha = self.critic_group.param[-1:]
        self.log_alpha.fill_(math.log(config.alpha_init))
        self.target_flat = torch.zeros_like(self.critic_group.param[:-1])
        bind_parameters(self.target.parameters(), self.target_flat)

    def _build_statistics(self) -> AgentStatistics:
        config, spec = self.config, self.env_spec
        where: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        obs = critic_obs = reward = None
        if config.obs_normalization:
            obs = RunningMeanStd(spec.obs_dim, **where)
            if spec.critic_obs_dim is not None:
                critic_obs = RunningMeanStd(spec.critic_obs_dim, **where)
        if config.reward_scaling:
            reward = RewardScaler(gamma=config.gamma, bound=min(-config.v_min, config.v_max), **where)
        return AgentStatistics(obs, critic_obs, reward, self.device, self.dtype)

    @property
    def objectives(self) -> HostObjectives | AutogradObjectives:
        """What writes the gradients."""
        return self._update.objectives

    @property
    def preparation(self) -> Preparation:
        """What the first update has to do that others have not; `prepare` does it before."""
        return self._update.preparation

    def prepare(self, batch: Batch, noise: Tensor) -> None:
        """Does what the first update would have to, on a batch and noise `[B, A]` of an update's sizes.

        Only gradients change. May run in another thread than all else, `update` excepted.
        """
        self._update.prepare(Given(batch, noise, noise))

    # ------------------------------------------------------------------ statistics

    def observe(
        self,
        obs: Tensor | np.ndarray,
        critic_obs: Tensor | np.ndarray | None = None,
        *,
        reward: Tensor | np.ndarray | None = None,
        terminated: Tensor | np.ndarray | None = None,
        truncated: Tensor | np.ndarray | None = None,
        cut: Tensor | np.ndarray | None = None,
    ) -> None:
        """Takes admitted generations into this rank's pending statistics; each once, in order.

        Args:
            obs: `[K, N, O]` or `[N, O]` slots' observations (never final ones).
            critic_obs: `[..., C]` likewise, where critics have their own.
            reward: `[K, N]` or `[N]` raw; needed with `reward_scaling`, as are the flags.
            terminated: Like `reward`, not 0 where the episode terminated.
            truncated: Like `reward`, not 0 where the episode was truncated.
            cut: Like `reward`, not 0 on cut rows, which count nowhere.

        Raises:
            ValueError: Something is missing that the settings need.
        """
        self.statistics.observe(obs, critic_obs, reward, terminated, truncated, cut)

    def mark_last_cut(self, env_lo: int, env_hi: int) -> None:
        """Restarts running returns of columns `[env_lo, env_hi)`; goes with `ReplayBuffer.mark_last_cut`."""
        if self.statistics.reward is not None:
            self.statistics.reward.mark_cut(env_lo, env_hi)

    def sync_statistics(self) -> None:
        """Merges what all ranks observed since the last call: one gather, and none with one rank."""
        self.statistics.sync(self.reducer)

    # ------------------------------------------------------------------ updates

    def update(
        self, replay: ReplayBuffer, num_updates: int, on_update: Callable[[int], None] | None = None
    ) -> None:
        """Does `num_updates` critic updates, each on its own batch, and the actor updates among them.

        Args:
            replay: Has at least one window (`ready`).
            num_updates: Critic updates to do.
            on_update: Called with `updates_done` after each (the publisher's hook).
        """
        left = num_updates
        while left > 0:
            chunk = min(left, NOISE_CHUNK)
            noise = torch.randn(
                (chunk, 2, self.batch_size, self.env_spec.action_dim),
                generator=self.generator,
                device=self.device,
                dtype=self.dtype,
            )
            for row in noise.unbind(0):
                out = self._update.batch or self._batch
                self._batch = replay.sample(self.batch_size, self.generator, out)
                self.update_on(self._batch, row[0], row[1])
                if on_update is not None:
                    on_update(self.updates_done)
            left -= chunk

    def update_on(self, batch: Batch, critic_noise: Tensor, actor_noise: Tensor) -> None:
        """One update on a given batch and given standard normal noise `[B, A]` for critics and actor."""
        self._update(Given(batch, critic_noise, actor_noise), self.updates_done)
        self.updates_done += 1

    # ------------------------------------------------------------------ publishing and metrics

    @torch.no_grad()
    def policy_vector(self, out: np.ndarray | Tensor) -> None:
        """Writes actor and normaliser to `out` `[policy_size]` float32, in the layout `Policy.load` reads."""
        target = torch.from_numpy(out) if isinstance(out, np.ndarray) else out
        size, obs_dim = self.actor_group.size, self.env_spec.obs_dim
        target[:size].copy_(self.actor_group.param)
        norm = self.statistics.obs
        if norm is None:
            target[size : size + obs_dim].zero_()
            target[size + obs_dim :].fill_(1.0)
        else:
            target[size : size + obs_dim].copy_(norm.shift)
            target[size + obs_dim :].copy_(norm.scale)

    def metrics(self) -> dict[str, float]:
        """Means over the reported updates since the last call, and totals. Waits for the device."""
        out = self._update.metrics()
        out["alpha"] = float(self.log_alpha.exp())
        out["target_entropy"] = self.target_entropy
        skipped = self.critic_group.optimizer.skipped + self.actor_group.optimizer.skipped
        out["nonfinite_skips"] = float(skipped)
        out["updates_done"] = float(self.updates_done)
        if self.statistics.reward is not None:
            out["reward_scale"] = float(self.statistics.reward.scale)
        return out

    # ------------------------------------------------------------------ replicas and state

    def trainable_tensors(self) -> dict[str, Tensor]:
        """Flat buffers that gradients change; each has a gradient buffer that is reduced."""
        return {"actor": self.actor_group.param, "critic": self.critic_group.param}

    def all_tensors(self) -> dict[str, Tensor]:
        """Every tensor that is the same on every rank: broadcast from rank 0 at the start and after a load.

        After writing into them call `refresh`.
        """
        named = {"target": self.target_flat}
        for prefix, group in (("actor", self.actor_group), ("critic", self.critic_group)):
            named |= {f"{prefix}.{name}": tensor for name, tensor in group.tensors().items()}
        named |= self.statistics.tensors()
        return named

    def refresh(self) -> None:
        """Recomputes what is derived from `all_tensors`, after a broadcast into them."""
        self.statistics.refresh()

    def parameter_hash(self) -> str:
        """SHA-256 of everything that must be equal on all ranks, counters included. Waits for the device."""
        digest = hashlib.sha256(str(self.updates_done).encode())
        for name, tensor in sorted(self.all_tensors().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on to the bit: tensors and plain containers only.

        `replicated` is equal on all ranks; `local` (random numbers, pending statistics, running returns) is
        this rank's.
        """
        return {
            "replicated": {
                name: tensor.detach().cpu().clone() for name, tensor in self.all_tensors().items()
            },
            "updates_done": self.updates_done,
            "local": self.local_state_dict(),
        }

    def local_state_dict(self) -> dict[str, Any]:
        """The part of `state_dict` that differs between ranks."""
        return {
            "generator": self.generator.get_state().clone(),
            "statistics": self.statistics.local_state(),
        }

    def load_state_dict(self, state: dict[str, Any], *, local: bool = True) -> None:
        """Restores `state_dict()`.

        Args:
            state: Of an agent of the same configuration and sizes.
            local: Whether to restore this rank's part too; False for fresh environments or another number of
                ranks.

        Raises:
            ValueError: A tensor is missing, unknown or of another shape; nothing has been changed then.
        """
        mine, theirs = self.all_tensors(), state["replicated"]
        problems = [f"{name} missing" for name in mine if name not in theirs]
        problems += [f"{name} unknown here" for name in theirs if name not in mine]
        problems += [
            f"{name} has shape {tuple(theirs[name].shape)}, here {tuple(mine[name].shape)}"
            for name in mine
            if name in theirs and theirs[name].shape != mine[name].shape
        ]
        if problems:
            raise ValueError(
                f"checkpoint does not fit this agent: {'; '.join(problems)}; "
                "network sizes, atoms, scaling options and the task must be those it was saved with"
            )
        for name, tensor in mine.items():
            tensor.detach().copy_(theirs[name])
        self.updates_done = int(state["updates_done"])
        if local:
            self.load_local_state_dict(state["local"])
        self.refresh()

    def load_local_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `local_state_dict()`."""
        self.generator.set_state(state["generator"].cpu())
        self.statistics.load_local_state(state["statistics"])
