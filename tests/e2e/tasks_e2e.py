"""A small task for tests of whole runs, with faults to order.

`tests.e2e.tasks_e2e:Toy/python.fastsac` is a point on a line that is pushed about: three numbers observed, one
action, no simulator. One named worker can be made to misbehave, by options: `env.victim=collector-0
env.at_step=raise env.step=20`. The supervisor, which makes one world for the task's sizes, never does.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
from typing import ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import register
from pydantic import Field

from motrix_rl.envs.base import BatchEnv, Float32, StepBuffers, WorldIds
from motrix_rl.envs.options import EnvOptions
from motrix_rl.envs.spec import EnvSpec

log = logging.getLogger(__name__)

SPEC = EnvSpec(obs_dim=3, action_dim=1, action_low=(-1.0,), action_high=(1.0,), max_episode_steps=20)

Fault = Literal["nothing", "raise", "exit", "leave", "kill", "hang", "print"]


class ToyOptions(EnvOptions):
    """Who misbehaves, how, when."""

    max_episode_steps: int | None = Field(20, ge=1, description="steps of an episode")
    victim: str = Field("", description="worker that misbehaves, or the beginning of several workers' names")
    at_build: Fault = Field("nothing", description="what it does while it is built")
    at_reset: Fault = Field("nothing", description="what it does at its first reset")
    at_step: Fault = Field("nothing", description="what it does at `step`")
    step: int = Field(
        10, ge=1, description="the step at which it does that (the count goes on over episodes)"
    )
    nan_every: int = Field(
        0, ge=0, description="steps between two observations that are not a number; 0 = never"
    )
    build_s: float = Field(0.0, ge=0, description="seconds that building takes longer")
    step_s: float = Field(0.0, ge=0, description="seconds that every step takes longer, for everybody")


class Toy(BatchEnv):
    """E points on a line; the reward is highest at the origin."""

    Options: ClassVar[type[EnvOptions]] = ToyOptions

    def __init__(
        self, options: ToyOptions, num_envs: int, *, seed: int, num_threads: int = 1, first_world: int = 0
    ) -> None:
        super().__init__(SPEC, num_envs, first_world=first_world)
        self.options = options
        self.steps = 0
        self._position = np.zeros(num_envs, np.float32)
        self._age = np.zeros(num_envs, np.int64)
        self._seed_worlds(seed)
        if self._is_victim():
            time.sleep(options.build_s)
        self._misbehave(options.at_build)

    def _seed_worlds(self, seed: int) -> None:
        self._rng = [np.random.default_rng([seed, self.first_world + i]) for i in range(self.num_envs)]

    def _reset_worlds(self, worlds: WorldIds, obs: Float32, critic_obs: Float32 | None) -> None:
        if self.steps == 0:
            self._misbehave(self.options.at_reset)
        for world in worlds.tolist():
            self._position[world] = self._rng[world].uniform(-1, 1)
            self._age[world] = 0
        self._observe(worlds, obs)

    def _observe(self, worlds: WorldIds, obs: Float32) -> None:
        obs[worlds, 0] = self._position[worlds]
        obs[worlds, 1] = self._age[worlds] / 20.0
        obs[worlds, 2] = 1.0

    def _step_worlds(self, action: Float32, out: StepBuffers) -> None:
        self._position += 0.1 * action[:, 0]
        self._age += 1
        self._observe(self._all_worlds, out.obs)
        out.reward[:] = 1.0 - np.abs(self._position)
        out.terminated[:] = np.abs(self._position) > 2.0
        out.truncated[:] = self._age >= (self.options.max_episode_steps or 1 << 30)
        self.steps += 1
        time.sleep(self.options.step_s)
        if self.options.nan_every and self._is_victim() and self.steps % self.options.nan_every == 0:
            out.obs[0, 0] = np.nan
        if self.steps == self.options.step:
            self._misbehave(self.options.at_step)

    def _is_victim(self) -> bool:
        name = multiprocessing.current_process().name
        return bool(self.options.victim) and name.startswith(self.options.victim)

    def _misbehave(self, fault: Fault) -> None:
        if self._is_victim():
            misbehave(fault)


def misbehave(fault: Fault) -> None:
    """Does what was ordered."""
    match fault:
        case "raise":
            raise RuntimeError("the toy is broken")
        case "exit":
            sys.exit(3)
        case "leave":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            while True:
                time.sleep(3600)
        case "print":
            os.write(1, b"written to descriptor 1\n")
            libc = ctypes.CDLL(None)
            libc.write(2, b"written by the C library\n", 25)
            print("printed by python", flush=True)


class Brittle(gymnasium.Env[np.ndarray, np.ndarray]):
    """The fifth instance made in a process raises at its 12th step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    made = 0

    def __init__(self, breaks: str = "collector-1") -> None:
        self._breaks = Brittle.made == 4 and multiprocessing.current_process().name == breaks
        Brittle.made += 1
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None):  # type: ignore[override]
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray):  # type: ignore[override]
        self._steps += 1
        if self._breaks and self._steps == 12:
            self._snap()
        return np.full(2, 0.5, np.float32), 1.0, False, False, {}

    def _snap(self) -> None:
        raise ArithmeticError("a joint snapped")


register(id="Brittle-v0", entry_point=Brittle, max_episode_steps=20)
