"""The acting side: one flat vector in, actions out, no autograd.

The vector is what learners publish: the actor's parameters in the order of `Actor.parameters()`, then the
observation normaliser's mean and `1 / (std + eps)` (0 and 1 where normalisation is off or nothing has been
seen).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu

from motrix_rl.algorithms.fastsac.flat import bind_parameters, count_parameters
from motrix_rl.algorithms.fastsac.networks import NORM_EPS, ActionScaling, Actor, DeterministicPolicy

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.envs.spec import EnvSpec

Generator = torch.Generator | np.random.Generator


class Policy:
    """Inference copy of an actor and its normaliser.

    Args:
        config: Settings of the agent.
        env_spec: Sizes and action bounds.
        device: Where to compute; observations and actions are numpy arrays on the host in any case.

    Attributes:
        size: Length of the flat vector.
    """

    def __init__(
        self, config: FastSACConfig, env_spec: EnvSpec, *, device: torch.device | str = "cpu"
    ) -> None:
        self.device = torch.device(device)
        self.obs_dim, self.action_dim = env_spec.obs_dim, env_spec.action_dim
        self._actor = make_actor(config, env_spec)
        self._scaling = ActionScaling(env_spec.action_low, env_spec.action_high).to(self.device)
        self._low = torch.tensor(env_spec.action_low, dtype=torch.float32, device=self.device)
        self._high = torch.tensor(env_spec.action_high, dtype=torch.float32, device=self.device)
        actor_size = count_parameters(self._actor.parameters())
        self.size = actor_size + 2 * self.obs_dim
        self._vector = torch.zeros(self.size, dtype=torch.float32, device=self.device)
        self._actor.requires_grad_(False)
        bind_parameters(self._actor.parameters(), self._vector[:actor_size])
        self._shift = self._vector[actor_size : actor_size + self.obs_dim]
        self._scale = self._vector[actor_size + self.obs_dim :]
        self._scale.fill_(1.0)
        mlp = self._actor.mlp
        self._layers = [
            (weight.detach()[0], bias.detach()[0, 0], gain.detach()[0, 0], offset.detach()[0, 0])
            for weight, bias, gain, offset in zip(
                mlp.weights, mlp.biases, mlp.gains, mlp.offsets, strict=False
            )
        ]
        self._head = (mlp.weights[-1].detach()[0], mlp.biases[-1].detach()[0, 0])
        self._half_range = 0.5 * (config.log_std_max - config.log_std_min)
        self._log_std_min = config.log_std_min

    def load(self, vector: np.ndarray | Tensor) -> None:
        """Takes a published vector `[size]` float32.

        Raises:
            ValueError: Its length is another network's.
        """
        if vector.shape != (self.size,):
            raise ValueError(
                f"policy vector has shape {tuple(vector.shape)}, this policy takes ({self.size},)"
            )
        if isinstance(vector, np.ndarray):
            if self.device.type == "cpu":
                np.copyto(self._vector.numpy(), vector)
                return
            vector = torch.from_numpy(vector if vector.flags.writeable else vector.copy())
        self._vector.copy_(vector)

    @torch.inference_mode()
    def act(
        self,
        obs: np.ndarray,
        out: np.ndarray,
        *,
        deterministic: bool = False,
        generator: Generator | None = None,
    ) -> None:
        """Actions for `obs` `[N, O]` float32, written to `out` `[N, A]` float32 in the environment's space.

        Args:
            obs: Raw observations.
            out: Where the actions go.
            deterministic: `tanh(mean)` instead of a sample.
            generator: Random numbers of the sample, the caller's own so that runs can be repeated.
        """
        x = torch.from_numpy(obs if obs.flags.writeable else obs.copy()).to(self.device)
        head = self._forward(x)
        mean = head[:, : self.action_dim]
        if not deterministic:
            noise = self._noise(obs.shape[0], generator)
            log_std = (
                torch.tanh(head[:, self.action_dim :])
                .add_(1.0)
                .mul_(self._half_range)
                .add_(self._log_std_min)
            )
            mean = noise.mul_(log_std.exp_()).add_(mean)
        action = torch.tanh(mean).mul_(self._scaling.scale).add_(self._scaling.bias)
        # scale * 1 + bias may round past the bound.
        torch.clamp(action, self._low, self._high, out=action)
        np.copyto(out, action.cpu().numpy())

    def _forward(self, obs: Tensor) -> Tensor:
        """Head outputs `[N, 2A]`."""
        x = (obs - self._shift).mul_(self._scale)
        for weight, bias, gain, offset in self._layers:
            x = layer_norm(torch.addmm(bias, x, weight), gain.shape, gain, offset, NORM_EPS)
            silu(x, inplace=True)
        weight, bias = self._head
        return torch.addmm(bias, x, weight)

    def _noise(self, rows: int, generator: Generator | None) -> Tensor:
        if isinstance(generator, np.random.Generator):
            noise = torch.from_numpy(generator.standard_normal((rows, self.action_dim), dtype=np.float32))
            return noise.to(self.device)
        return torch.randn(rows, self.action_dim, generator=generator, device=self.device)

    def random_actions(self, out: np.ndarray, rng: Generator) -> None:
        """Uniform actions within the bounds, written to `out` `[N, A]`."""
        low, high = self._low.cpu().numpy(), self._high.cpu().numpy()
        if isinstance(rng, np.random.Generator):
            unit = rng.random(out.shape, dtype=np.float32)
        else:
            unit = torch.rand(out.shape, generator=rng, device=rng.device).cpu().numpy()
        np.copyto(out, np.clip(low + (high - low) * unit, low, high))

    def export_module(self) -> DeterministicPolicy:
        """A plain module with its own copy of everything, from raw observation to action, on the host."""
        scaling = ActionScaling(tuple(self._low.tolist()), tuple(self._high.tolist()))
        module = DeterministicPolicy(
            self._actor, scaling, self._shift.cpu().clone(), self._scale.cpu().clone()
        )
        return module.requires_grad_(False).eval()


def make_actor(config: FastSACConfig, env_spec: EnvSpec, generator: torch.Generator | None = None) -> Actor:
    """Actor of these settings, on the host in float32."""
    return Actor(
        env_spec.obs_dim,
        env_spec.action_dim,
        config.actor_hidden_dim,
        config.log_std_min,
        config.log_std_max,
        generator,
    )
