"""`GymnasiumBatchEnv`: any registered Gymnasium environment with Box spaces, many in one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as EnvSpecification
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

from motrix_rl.envs.base import BatchEnv, Float32, StepBuffers, WorldError, WorldIds
from motrix_rl.envs.options import EnvOptions, GymnasiumOptions
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.errors import UsageError, nearest


class GymnasiumBatchEnv(BatchEnv):
    """E instances of one registered environment, stepped one after another.

    Observations of Dict and Tuple spaces are flattened in the order of the space; whatever their dtype, they
    arrive as float32. Actions are clipped to the environment's own bounds and given its own shape and dtype.
    """

    Options: ClassVar[type[EnvOptions]] = GymnasiumOptions
    backend: ClassVar[str] = "gymnasium"

    def __init__(
        self,
        env_id: str,
        options: GymnasiumOptions,
        num_envs: int,
        *,
        seed: int = 0,
        first_world: int = 0,
    ) -> None:
        """Makes the environments.

        Args:
            env_id: a registered id, or `module:id` for one that is registered when the module is imported.
            options: time limit and constructor arguments.
            num_envs: number of environments.
            seed: start of the random streams, not negative.
            first_world: index of environment 0 within the whole run.

        Raises:
            UsageError: no such environment, it cannot be made, or its spaces cannot be trained on.
        """
        self.envs = [_make(env_id, options) for _ in range(max(1, num_envs))]
        first = self.envs[0]
        self._obs_space = first.observation_space
        self._bounds = _action_space(env_id, first.action_space)
        super().__init__(_make_spec(env_id, first), num_envs, first_world=first_world)
        self._seed_worlds(seed)

    def _seed_worlds(self, seed: int) -> None:
        # Each is used at the environment's next reset; later resets go on with its own stream.
        self._seeds: list[int | None] = [
            int(np.random.SeedSequence([seed, self.first_world + i]).generate_state(1)[0] >> 1)
            for i in range(self.num_envs)
        ]

    def _reset_worlds(self, worlds: WorldIds, obs: Float32, critic_obs: Float32 | None) -> None:
        for world in worlds.tolist():
            seed, self._seeds[world] = self._seeds[world], None
            with self._blame(world):
                first, _ = self.envs[world].reset(seed=seed)
                flatten_into(self._obs_space, first, obs[world])

    def _step_worlds(self, action: Float32, out: StepBuffers) -> None:
        low, high = self._bounds.low, self._bounds.high
        actions = action.reshape(self.num_envs, *self._bounds.shape).astype(np.float64)
        if np.issubdtype(self._bounds.dtype, np.integer):
            actions = np.rint(actions)
        # Clipped after the cast, in the environment's dtype: float32 may round past a float64 bound.
        actions = np.clip(actions.astype(self._bounds.dtype), low, high)
        for world, env in enumerate(self.envs):
            with self._blame(world):
                obs, reward, terminated, truncated, _ = env.step(actions[world])
                flatten_into(self._obs_space, obs, out.obs[world])
                out.reward[world] = reward
            out.terminated[world] = bool(terminated)
            out.truncated[world] = bool(truncated)

    @contextmanager
    def _blame(self, world: int) -> Iterator[None]:
        """Names the environment in whatever it raises."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise WorldError(self.first_world + world, reason) from error

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every environment."""
        for env in self.envs:
            env.close()


def flat_size(space: spaces.Space[Any], where: str = "") -> int:
    """Returns the number of numbers in an observation of Box spaces.

    Raises:
        UsageError: a part is not a Box; the message says which.
    """
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape, dtype=np.int64))
    if isinstance(space, spaces.Dict):
        return sum(flat_size(part, f"{where}[{key!r}]") for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return sum(flat_size(part, f"{where}[{i}]") for i, part in enumerate(space.spaces))
    raise UsageError(f"observation{where} is {space}; only Box, and Dict or Tuple of Box, can be trained on")


def flatten_into(space: spaces.Space[Any], value: Any, out: Float32) -> None:
    """Writes an observation into `out` [O] float32, parts in the order of the space."""
    if isinstance(space, spaces.Box):
        # One check a leaf: without it numpy would repeat a scalar over the row in silence.
        array = np.asarray(value)
        if array.size != out.size:
            raise ValueError(f"observation of shape {array.shape} where the space says {space.shape}")
        out[:] = array.ravel()
        return
    at = 0
    for part, item in _parts(space, value):
        size = flat_size(part)
        flatten_into(part, item, out[at : at + size])
        at += size


def _parts(space: spaces.Space[Any], value: Any) -> list[tuple[spaces.Space[Any], Any]]:
    if isinstance(space, spaces.Dict):
        return [(part, value[key]) for key, part in space.spaces.items()]
    assert isinstance(space, spaces.Tuple), space
    return list(zip(space.spaces, value, strict=True))


def _make(env_id: str, options: GymnasiumOptions) -> gym.Env[Any, Any]:
    limit: dict[str, Any] = (
        {} if options.max_episode_steps is None else {"max_episode_steps": options.max_episode_steps}
    )
    try:
        return gym.make(env_id, disable_env_checker=True, **limit, **options.kwargs)
    except gym.error.UnregisteredEnv as error:
        found = _nearest_id(env_id)
        hint = "" if found is None else f"; did you mean '{found}'?"
        raise UsageError(f"gymnasium knows no environment {env_id!r}{hint}") from error
    except (gym.error.Error, ImportError, TypeError) as error:
        raise UsageError(f"cannot make {env_id!r}: {error}") from error


def _nearest_id(env_id: str) -> str | None:
    """The registered id most like `env_id`, its module before it; the newest version, and one that can be made."""
    module, _, wanted = env_id.rpartition(":")
    newest: dict[str, EnvSpecification] = {}
    for spec in gym.registry.values():
        name = _without_version(spec.id)
        if name not in newest or (spec.version or 0) > (newest[name].version or 0):
            newest[name] = spec
    # Without versions: `-v9` is like `-v2`, and would make unlike names alike.
    while (name := nearest(_without_version(wanted), newest)) is not None:
        spec = newest.pop(name)
        if _is_installed(spec):
            ours = str(spec.entry_point).startswith("gymnasium.")
            return ":".join(filter(None, ("gymnasium" if ours else module, spec.id)))
    return None


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _is_installed(spec: EnvSpecification) -> bool:
    """Whether what an environment is made of can be imported; some of Gymnasium's own need packages of others."""
    if not isinstance(spec.entry_point, str):
        return spec.entry_point is not None
    try:
        load_env_creator(spec.entry_point)
    except (ImportError, AttributeError, gym.error.Error):
        return False
    return True


def _action_space(env_id: str, space: spaces.Space[Any]) -> spaces.Box:
    if not isinstance(space, spaces.Box):
        raise UsageError(f"{env_id}: its actions are {space}; FastSAC needs continuous actions (a Box)")
    infinite = ~(np.isfinite(space.low) & np.isfinite(space.high))
    if infinite.any():
        raise UsageError(
            f"{env_id}: {int(infinite.sum())} of {infinite.size} actions have no finite bounds, to which "
            "the policy's squashed Gaussian would be scaled; give its action space finite bounds"
        )
    if not (space.low < space.high).all():
        raise UsageError(f"{env_id}: an action's lower bound is not below its upper one")
    return space


def _make_spec(env_id: str, env: gym.Env[Any, Any]) -> EnvSpec:
    bounds = _action_space(env_id, env.action_space)
    low: NDArray[np.float64] = bounds.low.ravel().astype(np.float64)
    high: NDArray[np.float64] = bounds.high.ravel().astype(np.float64)
    dt = getattr(env.unwrapped, "dt", None)
    return EnvSpec(
        obs_dim=flat_size(env.observation_space),
        action_dim=low.size,
        action_low=tuple(low.tolist()),
        action_high=tuple(high.tolist()),
        max_episode_steps=None if env.spec is None else env.spec.max_episode_steps,
        control_dt=float(dt) if isinstance(dt, int | float) else None,
    )
