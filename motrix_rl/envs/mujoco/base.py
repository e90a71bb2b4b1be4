"""`MujocoBatchEnv`: the base of tasks stepped by `mujoco.batch.Batch`.

The state of all worlds lies in one array, a row a world; `qpos`, `qvel`, `ctrl` and `time` are views into it,
and what a task writes and reads are array expressions over all worlds at once. MuJoCo's own threads step.

As after `mj_step`, fields computed from the state (`xpos`, `cinert`, ...) describe the state before the last
simulation step; Gymnasium's environments read them so, and the tasks here do too.
"""

# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from motrix_rl.envs.base import BatchEnv, Float32, StepBuffers, WorldError, WorldIds
from motrix_rl.envs.mujoco.force_batch import ForceBatch
from motrix_rl.envs.mujoco.models import load_model
from motrix_rl.envs.noise import WorldNoise
from motrix_rl.envs.options import EnvOptions
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.errors import MotrixError

Rows = slice | WorldIds
"""Rows of an array over worlds: `slice(None)` for all, or ascending indices."""
Float64 = NDArray[np.float64]

_ALL = slice(None)
_STAGE_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
# The counters of a bad position, velocity, acceleration or control, which lie next to one another. After one
# of the first three MuJoCo has put the world back to its default state without a word to the caller.
_DIVERGED = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADCTRL) + 1)


class MujocoBatchEnv(BatchEnv):
    """E worlds of one MuJoCo model.

    A task sets `Options` and writes `model_path`, `obs_size`, `initial_state`, `write_obs` and
    `evaluate_step`; where the reward compares two moments, also `remember` (and names what it keeps in
    `task_arrays`); where the critic sees more than the actor, `critic_obs_size` and `write_critic_obs`.
    Per-world numbers come from `self.noise` alone, so that worlds stay independent.

    Attributes:
        options: the validated options.
        model: the model, shared by all worlds.
        qpos, qvel, ctrl: [E, nq], [E, nv], [E, nu] float64, live views of the state.
        noise: the worlds' random streams.
        dt: seconds of simulated time in a control step.
    """

    backend: ClassVar[str] = "mujoco"
    persistent: ClassVar[bool] = False
    """Whether each world keeps an `MjData` of its own. One a thread stays in the cache and is faster."""
    task_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of the task's own arrays over worlds, saved in checkpoints."""

    def __init__(
        self,
        options: EnvOptions,
        num_envs: int,
        *,
        seed: int = 0,
        num_threads: int = 1,
        first_world: int = 0,
    ) -> None:
        """Builds the worlds. Do so in the process that steps them: threads do not survive a fork.

        Args:
            options: an instance of the task's `Options`.
            num_envs: number of worlds.
            seed: start of the random streams, not negative.
            num_threads: threads that step, the caller's included; the results do not depend on it.
            first_world: index of world 0 within the whole run.

        Raises:
            UsageError: the model cannot be found or compiled.
        """
        self.options = options
        self.model = load_model(self.model_path())
        self.frame_skip = int(getattr(options, "frame_skip", 1))
        self.dt = float(self.model.opt.timestep) * self.frame_skip
        super().__init__(self._make_spec(), num_envs, first_world=first_world)
        self.noise = WorldNoise(seed, first_world, num_envs)
        self.batch = self._make_batch(num_envs, max(1, num_threads))
        self.qpos: Float64 = self.batch.bind("qpos")
        self.qvel: Float64 = self.batch.bind("qvel")
        self.ctrl: Float64 = self.batch.bind("ctrl")
        self._max_steps = options.max_episode_steps
        self._episode_steps = np.zeros(num_envs, np.int64)
        current = StepBuffers.allocate(self.env_spec, num_envs)
        self._current_obs, self._current_critic_obs = current.obs, current.critic_obs
        self.setup()

    def _make_batch(self, num_envs: int, num_threads: int) -> Batch | ForceBatch:
        num_threads = min(num_threads, num_envs)
        if self.needs_body_forces():
            return ForceBatch(self.model, num_envs, num_threads)
        return Batch(self.model, num_envs, num_threads, persistent=self.persistent)

    def _make_spec(self) -> EnvSpec:
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        return EnvSpec(
            obs_dim=self.obs_size(),
            action_dim=self.model.nu,
            action_low=tuple(map(float, low)),
            action_high=tuple(map(float, high)),
            critic_obs_dim=self.critic_obs_size(),
            max_episode_steps=self.options.max_episode_steps,
            control_dt=self.dt,
        )

    # What a task writes ---------------------------------------------------------------------------------

    @abstractmethod
    def model_path(self) -> Path:
        """Returns the path of the MJCF file; `self.options` is set."""

    @abstractmethod
    def obs_size(self) -> int:
        """Returns the number of numbers in an observation; `self.options` and `self.model` are set."""

    @abstractmethod
    def initial_state(self, worlds: WorldIds) -> tuple[Float64, Float64]:
        """Returns positions [k, nq] and velocities [k, nv] with which k worlds start an episode."""

    @abstractmethod
    def write_obs(self, rows: Rows, obs: Float32) -> None:
        """Writes `obs[rows]` from the present state; `obs` is [E, O]."""

    @abstractmethod
    def evaluate_step(self, action: Float32, reward: Float32, terminated: NDArray[np.uint8]) -> None:
        """Writes reward [E] and terminated [E] of the step just taken."""

    def critic_obs_size(self) -> int | None:
        """Returns the number of numbers in the critic's observation, None where it is the actor's."""
        return None

    def write_critic_obs(self, rows: Rows, critic_obs: Float32) -> None:
        """Writes `critic_obs[rows]` from the present state; `critic_obs` is [E, C]."""

    def needs_body_forces(self) -> bool:
        """Returns whether the task reads `cfrc_ext`, which costs another pass after each step."""
        return False

    def setup(self) -> None:
        """Binds fields and makes arrays, once, before the first reset."""

    def remember(self, rows: Rows) -> None:
        """Keeps what the next step's reward compares with; called after every step and reset."""

    # What the base calls --------------------------------------------------------------------------------

    def _seed_worlds(self, seed: int) -> None:
        self.noise.reseed(seed)

    def _reset_worlds(self, worlds: WorldIds, obs: Float32, critic_obs: Float32 | None) -> None:
        self.set_state(worlds, *self.initial_state(worlds))
        self._observe(worlds, obs, critic_obs)

    def set_state(self, worlds: WorldIds, qpos: Float64, qvel: Float64) -> None:
        """Starts an episode in `worlds` (ascending) at the given positions [k, nq] and velocities [k, nv].

        Everything else (time, controls, warm start, warning counters) is as in a fresh `MjData`.
        """
        self._call(self.batch.reset, worlds, stage=_STAGE_NONE)
        self.qpos[worlds], self.qvel[worlds] = qpos, qvel
        self._call(self.batch.forward, worlds)
        self._episode_steps[worlds] = 0
        self.remember(worlds)

    def _step_worlds(self, action: Float32, out: StepBuffers) -> None:
        self.ctrl[:] = action
        self._call(self.batch.step, nstep=self.frame_skip, stage=_STAGE_NONE)
        self._episode_steps += 1
        self._observe(_ALL, out.obs, out.critic_obs)
        self.evaluate_step(action, out.reward, out.terminated)
        self.remember(_ALL)
        if self._max_steps is None:
            out.truncated[:] = 0
        else:
            np.greater_equal(self._episode_steps, self._max_steps, out=out.truncated, casting="unsafe")
        diverged = self.batch.warning[:, _DIVERGED, 1]
        if diverged.any():
            out.cut[:] = diverged.any(axis=1)

    def _observe(self, rows: Rows, obs: Float32, critic_obs: Float32 | None) -> None:
        self.write_obs(rows, obs)
        self._current_obs[rows] = obs[rows]
        if self._current_critic_obs is not None:
            assert critic_obs is not None, "this task has an observation for the critic"
            self.write_critic_obs(rows, critic_obs)
            self._current_critic_obs[rows] = critic_obs[rows]

    def _call(self, function: Any, worlds: WorldIds | None = None, **kwargs: Any) -> None:
        try:
            function(worlds, **kwargs)
        except SimulationError as error:
            world = int(error.ids[0])
            reason = " ".join(self.batch.error(world).split())
            raise WorldError(self.first_world + world, f"MuJoCo: {reason}") from error

    # Checkpoints and looking in -------------------------------------------------------------------------

    def current_obs_into(self, obs: Float32, critic_obs: Float32 | None = None) -> None:
        """Writes the observations [E, O] (and [E, C]) that the last reset, step or restored state gave."""
        obs[:] = self._current_obs
        if critic_obs is not None and self._current_critic_obs is not None:
            critic_obs[:] = self._current_critic_obs

    def state_dict(self) -> dict[str, Any]:
        """Returns numpy arrays and numbers from which every world goes on to the bit."""
        return {
            "task": type(self).__name__,
            "first_world": self.first_world,
            "nonfinite_count": self.nonfinite_count,
            "integration": self.batch.state.copy(),
            "episode_steps": self._episode_steps.copy(),
            "current_obs": self._current_obs.copy(),
            "current_critic_obs": _copy(self._current_critic_obs),
            "noise": self.noise.state_dict(),
            "arrays": {name: getattr(self, name).copy() for name in self.task_arrays},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; `current_obs_into` then gives the observation to act on.

        Raises:
            MotrixError: it is the state of another task, or of another number of worlds.
        """
        saved = np.asarray(state["integration"])
        if state["task"] != type(self).__name__ or saved.shape != self.batch.state.shape:
            raise MotrixError(
                f"saved state of {state['task']} with {saved.shape[0]} worlds of {saved.shape[1]} numbers "
                f"does not fit {type(self).__name__} with {self.num_envs} of {self.batch.state.shape[1]}"
            )
        self.noise.load_state_dict(state["noise"])
        self.batch.state[:] = saved
        self.batch.warning[:] = 0
        self.nonfinite_count = int(state["nonfinite_count"])
        self._episode_steps[:] = np.asarray(state["episode_steps"])
        self._current_obs[:] = np.asarray(state["current_obs"])
        if self._current_critic_obs is not None:
            self._current_critic_obs[:] = np.asarray(state["current_critic_obs"])
        for name in self.task_arrays:
            getattr(self, name)[:] = np.asarray(state["arrays"][name])

    def mj_data(self, world: int, data: mujoco.MjData | None = None) -> mujoco.MjData:
        """Returns one world as an `MjData`, ready to be rendered with `self.model`."""
        data = self.batch.get_data(world, data)
        mujoco.mj_forward(self.model, data)
        return data

    def close_extras(self, **kwargs: Any) -> None:
        """Ends MuJoCo's threads."""
        del self.batch, self.qpos, self.qvel, self.ctrl


def _copy(array: Float32 | None) -> Float32 | None:
    return None if array is None else array.copy()
