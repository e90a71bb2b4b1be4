"""`BatchEnv`: the one interface through which collectors, evaluators and tests step worlds.

Data flow of one step::

    action [E, A] -> _step_worlds -> rows with a non-finite number are cut
                                  -> ended rows: final observation copied out, compact
                                  -> ended and cut worlds are reset, `obs` then holds their first observation

What ends an episode, what is a final observation and what happens to a world that diverged is decided here
and nowhere else; a backend only steps and resets.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from motrix_rl.envs.options import EnvOptions
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.errors import MotrixError

Float32 = NDArray[np.float32]
Flags = NDArray[np.uint8]
WorldIds = NDArray[np.int32]

logger = logging.getLogger(__name__)


class WorldError(MotrixError):
    """An environment raised, or cannot even be reset; its own exception is the cause (`__cause__`).

    Attributes:
        world: index of the environment within the whole run.
    """

    def __init__(self, world: int, message: str) -> None:
        super().__init__(f"environment {world}: {message}")
        self.world = world
        self._message = message

    def __reduce__(self) -> tuple[type[WorldError], tuple[int, str]]:
        # Exceptions are rebuilt from `args`, the one text, when they cross a process.
        return WorldError, (self.world, self._message)


@dataclass
class StepBuffers:
    """Where one step of E worlds is written; each array may be a view of a ring's slot.

    Attributes:
        obs: [E, O] float32, the next observation (the first of the next episode where one ended).
        critic_obs: [E, C] float32 or None, the same for the critic.
        reward: [E] float32.
        terminated: [E] uint8, the episode ended in a state without a future.
        truncated: [E] uint8, the episode was ended from outside; never set together with `terminated`.
        cut: [E] uint8, the transition is void (the world produced a non-finite number and was reset).
        final_index: [E] int32, row i: the world to which final observation i belongs; ascending.
        final_obs: [E, O] float32, last observations of the episodes that ended, compact.
        final_critic_obs: [E, C] float32 or None, the same for the critic.
    """

    obs: Float32
    critic_obs: Float32 | None
    reward: Float32
    terminated: Flags
    truncated: Flags
    cut: Flags
    final_index: WorldIds
    final_obs: Float32
    final_critic_obs: Float32 | None

    @classmethod
    def allocate(cls, spec: EnvSpec, num_envs: int) -> StepBuffers:
        """Returns zeroed buffers for `num_envs` worlds of an environment."""
        critic_shape = None if spec.critic_obs_dim is None else (num_envs, spec.critic_obs_dim)
        return cls(
            obs=np.zeros((num_envs, spec.obs_dim), np.float32),
            critic_obs=None if critic_shape is None else np.zeros(critic_shape, np.float32),
            reward=np.zeros(num_envs, np.float32),
            terminated=np.zeros(num_envs, np.uint8),
            truncated=np.zeros(num_envs, np.uint8),
            cut=np.zeros(num_envs, np.uint8),
            final_index=np.zeros(num_envs, np.int32),
            final_obs=np.zeros((num_envs, spec.obs_dim), np.float32),
            final_critic_obs=None if critic_shape is None else np.zeros(critic_shape, np.float32),
        )


class BatchEnv(VectorEnv, ABC):
    """E worlds of one task, stepped together, with same-step autoreset.

    A subclass writes `_seed_worlds`, `_reset_worlds` and `_step_worlds`. It may be driven through
    `reset_into`/`step_into`, which write into the caller's memory, or through Gymnasium's `reset`/`step`.

    Attributes:
        Options: pydantic model of the task's options; a task of one's own names its own here.
        env_spec: sizes and bounds.
        num_envs: number of worlds E.
        first_world: index of world 0 within the whole run, for random streams and messages.
        nonfinite_count: transitions cut so far because a number was not finite.
    """

    Options: ClassVar[type[EnvOptions]] = EnvOptions
    backend: ClassVar[str] = "python"

    def __init__(self, env_spec: EnvSpec, num_envs: int, *, first_world: int = 0) -> None:
        """Sets up spaces and counters.

        Raises:
            ValueError: `num_envs` is below 1.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.env_spec = env_spec
        self.num_envs = num_envs
        self.first_world = first_world
        self.nonfinite_count = 0
        self.single_observation_space = Box(-np.inf, np.inf, (env_spec.obs_dim,), np.float32)
        self.single_action_space = Box(
            np.asarray(env_spec.action_low, np.float32), np.asarray(env_spec.action_high, np.float32)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._all_worlds = np.arange(num_envs, dtype=np.int32)
        self._buffers: StepBuffers | None = None

    # What a backend writes ------------------------------------------------------------------------------

    @abstractmethod
    def _seed_worlds(self, seed: int) -> None:
        """Starts every world's random stream anew; world i's depends on (seed, first_world + i) only."""

    @abstractmethod
    def _reset_worlds(self, worlds: WorldIds, obs: Float32, critic_obs: Float32 | None) -> None:
        """Starts an episode in `worlds` (ascending) and writes their rows of `obs` [E, O]; no other row."""

    @abstractmethod
    def _step_worlds(self, action: Float32, out: StepBuffers) -> None:
        """Advances all worlds by a control step.

        Writes `obs`, `critic_obs`, `reward`, `terminated` and `truncated` of every row, without resetting
        anything, and sets `cut` (already zeroed) of worlds it knows to have diverged.
        """

    # The interface of the data plane --------------------------------------------------------------------

    def reset_into(self, seed: int | None, obs: Float32, critic_obs: Float32 | None = None) -> None:
        """Starts an episode in every world.

        Args:
            seed: starts the random streams anew, or None to let them run on.
            obs: [E, O] float32, receives the first observations.
            critic_obs: [E, C] float32, needed where the task has an observation for the critic.

        Raises:
            WorldError: an environment raised, or its first observation is not finite.
        """
        if seed is not None:
            self._seed_worlds(seed)
        with np.errstate(all="ignore"):
            self._reset_worlds(self._all_worlds, obs, critic_obs)
        self._require_finite(self._all_worlds, obs, critic_obs)

    def step_into(self, action: Float32, out: StepBuffers) -> int:
        """Advances every world by one control step, in place.

        Args:
            action: [E, A] float32, in the environment's own units.
            out: receives the step; every array is overwritten (`final_*` up to the returned number).

        Returns:
            Number of episodes that ended, the rows of `final_index` and `final_obs` that are valid.

        Raises:
            WorldError: an environment raised.
        """
        out.cut[:] = 0
        # A diverging world overflows on its way; it is found below, so numpy need not say it too.
        with np.errstate(all="ignore"):
            self._step_worlds(action, out)
            self._cut_nonfinite(action, out)
        # Terminated wins: a state without a future stays one when the time is up as well.
        np.logical_and(out.truncated, np.logical_not(out.terminated), out=out.truncated, casting="unsafe")
        ended = np.flatnonzero(out.terminated | out.truncated).astype(np.int32)
        if ended.size:
            out.final_index[: ended.size] = ended
            out.final_obs[: ended.size] = out.obs[ended]
            if out.critic_obs is not None and out.final_critic_obs is not None:
                out.final_critic_obs[: ended.size] = out.critic_obs[ended]
        self._reset_finished(ended, out)
        return int(ended.size)

    def _reset_finished(self, ended: WorldIds, out: StepBuffers) -> None:
        finished = ended
        if out.cut.any():
            finished = np.flatnonzero(out.terminated | out.truncated | out.cut).astype(np.int32)
        if finished.size:
            with np.errstate(all="ignore"):
                self._reset_worlds(finished, out.obs, out.critic_obs)
            self._require_finite(finished, out.obs, out.critic_obs)

    def _cut_nonfinite(self, action: Float32, out: StepBuffers) -> None:
        """Voids the rows that hold a number that is not finite, and says which worlds they were."""
        # A finite sum proves that every term is finite, and costs one pass over the data.
        suspicious = not (np.isfinite(out.obs.sum()) and np.isfinite(out.reward.sum()))
        if out.critic_obs is not None:
            suspicious = suspicious or not np.isfinite(out.critic_obs.sum())
        if not suspicious and not out.cut.any():
            return
        bad = out.cut.astype(bool) | ~np.isfinite(out.reward) | ~np.isfinite(out.obs).all(axis=1)
        if out.critic_obs is not None:
            bad |= ~np.isfinite(out.critic_obs).all(axis=1)
        out.cut[:] = bad
        for array in (out.reward, out.terminated, out.truncated):
            array[bad] = 0
        for world in np.flatnonzero(bad):
            self._report_nonfinite(int(world), action[world])

    def _report_nonfinite(self, world: int, action: Float32) -> None:
        self.nonfinite_count += 1
        # A task that diverges all the time must not fill the log: the first ten, then ever more rarely.
        if self.nonfinite_count > 10 and self.nonfinite_count & (self.nonfinite_count - 1):
            return
        blame = "" if np.isfinite(action).all() else " after a non-finite action"
        logger.warning(
            "environment %d diverged (non-finite state, observation or reward)%s; its episode was cut and "
            "it was reset (%d such so far)",
            self.first_world + world,
            blame,
            self.nonfinite_count,
        )

    def _require_finite(self, worlds: WorldIds, obs: Float32, critic_obs: Float32 | None) -> None:
        for array in (obs, critic_obs):
            if array is not None and not np.isfinite(array[worlds]).all():
                rows = worlds[~np.isfinite(array[worlds]).all(axis=1)]
                raise WorldError(
                    self.first_world + int(rows[0]), "its first observation after a reset is not finite"
                )

    # Gymnasium's interface ------------------------------------------------------------------------------

    def reset(  # type: ignore[override]
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Starts an episode in every world; see `gymnasium.vector.VectorEnv.reset`.

        Raises:
            ValueError: a list of seeds was given (a world's seed follows from one seed and its index), or
                options.
        """
        if isinstance(seed, list) or options:
            raise ValueError("reset takes one seed for all worlds and no options")
        buffers = self._own_buffers()
        self.reset_into(seed, buffers.obs, buffers.critic_obs)
        infos: dict[str, Any] = {}
        if buffers.critic_obs is not None:
            infos["critic_obs"] = buffers.critic_obs.copy()
        return buffers.obs.copy(), infos

    def step(  # type: ignore[override]
        self, actions: Float32
    ) -> tuple[Float32, Float32, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Advances every world; see `gymnasium.vector.VectorEnv.step` with same-step autoreset.

        `infos["final_obs"]` (objects, None where no episode ended) and its mask `infos["_final_obs"]` are
        there when an episode ended. This interface has no word for a transition that is void: such a world
        is reported as truncated, its last finite observation as its final one, and marked in
        `infos["cut"]`.
        """
        buffers = self._own_buffers()
        previous = buffers.obs.copy()
        count = self.step_into(np.asarray(actions, np.float32), buffers)
        cut = buffers.cut.astype(bool)
        infos: dict[str, Any] = {}
        if buffers.critic_obs is not None:
            infos["critic_obs"] = buffers.critic_obs.copy()
        if count or cut.any():
            final = np.full(self.num_envs, None, dtype=object)
            for row, world in enumerate(buffers.final_index[:count]):
                final[world] = buffers.final_obs[row].copy()
            for world in np.flatnonzero(cut):
                final[world] = previous[world]
            infos["final_obs"] = final
            infos["_final_obs"] = (buffers.terminated | buffers.truncated | buffers.cut).astype(bool)
        if cut.any():
            infos["cut"] = cut
            infos["_cut"] = cut.copy()
        truncated = (buffers.truncated | buffers.cut).astype(bool)
        return buffers.obs.copy(), buffers.reward.copy(), buffers.terminated.astype(bool), truncated, infos

    def _own_buffers(self) -> StepBuffers:
        if self._buffers is None:
            self._buffers = StepBuffers.allocate(self.env_spec, self.num_envs)
        return self._buffers

    # Checkpoints ----------------------------------------------------------------------------------------

    def current_obs_into(self, obs: Float32, critic_obs: Float32 | None = None) -> None:
        """Writes the observations that the last reset or step gave, as after `load_state_dict`.

        Raises:
            MotrixError: this backend cannot save its state.
        """
        raise MotrixError(f"{type(self).__name__} cannot save or restore its state")

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that a later run needs to go on to the bit: arrays and plain numbers.

        Raises:
            MotrixError: this backend cannot save its state.
        """
        raise MotrixError(f"{type(self).__name__} cannot save or restore its state")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned, into an environment built with the same arguments.

        Raises:
            MotrixError: this backend cannot save its state, or the state is another environment's.
        """
        raise MotrixError(f"{type(self).__name__} cannot save or restore its state")
