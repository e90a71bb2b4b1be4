# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""Measures the ways of stepping many MuJoCo worlds, for the fields that a task reads.

Each way advances the same worlds by one control step after another and leaves every world's positions and
velocities in one float32 array, as an environment has to; the numbers are control steps a second, summed
over worlds. Run it with `python -m motrix_rl.envs.bench_stepping`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch
from mujoco.rollout import Rollout
from numpy.typing import NDArray

from motrix_rl.envs.base import StepBuffers
from motrix_rl.envs.mujoco.base import MujocoBatchEnv
from motrix_rl.tasks.registry import make_env

Step = Callable[[NDArray[np.float32]], None]
_REPETITIONS = 3


@dataclass(frozen=True)
class StepRate:
    """One measurement.

    Attributes:
        task: name of the task whose model and control step are used.
        way: `env` (the whole environment), `batch`, `batch persistent`, `rollout`, `threads` or `loop`.
        threads: threads that step.
        worlds: number of worlds.
        steps_per_second: control steps a second over all worlds, median of the repetitions.
        spread: (fastest - slowest) / median of the repetitions.
    """

    task: str
    way: str
    threads: int
    worlds: int
    steps_per_second: float
    spread: float


class _Worlds:
    """What every way of stepping needs: the model, random initial states and a place for the result."""

    def __init__(self, task: str, worlds: int, threads: int) -> None:
        env = make_env(task, "mujoco", worlds, seed=0, num_threads=threads)
        assert isinstance(env, MujocoBatchEnv)
        self.env = env
        self.model, self.frame_skip = env.model, env.frame_skip
        self.worlds, self.threads = worlds, threads
        self.obs = np.zeros((worlds, self.model.nq + self.model.nv), np.float32)
        self.buffers = StepBuffers.allocate(env.env_spec, worlds)
        env.reset_into(0, self.buffers.obs)
        self.qpos, self.qvel = env.qpos.copy(), env.qvel.copy()

    def _split(self, array: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return array[:, : self.model.nq], array[:, self.model.nq :]

    def step_env(self) -> Step:
        return lambda action: (self.env.step_into(action, self.buffers), None)[1]

    def step_batch(self, persistent: bool) -> Step:
        batch = Batch(self.model, self.worlds, self.threads, persistent=persistent)
        qpos, qvel, ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        qpos[:], qvel[:] = self.qpos, self.qvel
        positions, velocities = self._split(self.obs)

        def step(action: NDArray[np.float32]) -> None:
            ctrl[:] = action
            batch.step(nstep=self.frame_skip)
            positions[:] = qpos
            velocities[:] = qvel

        return step

    def step_rollout(self) -> Step:
        """`mujoco.rollout` takes and returns whole states; one call a control step closes the loop.

        It does not return the solver's warm start, so its results are not the others' to the bit.
        """
        spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
        size = mujoco.mj_stateSize(self.model, spec)
        pool = Rollout(nthread=self.threads if self.threads > 1 else 0)
        worlds_data = [mujoco.MjData(self.model) for _ in range(self.threads)]
        state = np.zeros((self.worlds, size))
        state[:, 1 : 1 + self.model.nq] = self.qpos
        state[:, 1 + self.model.nq : 1 + self.model.nq + self.model.nv] = self.qvel
        out = np.zeros((self.worlds, self.frame_skip, size))
        control = np.zeros((self.worlds, self.frame_skip, self.model.nu))

        def step(action: NDArray[np.float32]) -> None:
            control[:] = action[:, None]
            pool.rollout(self.model, worlds_data, state, control, nstep=self.frame_skip, state=out)
            state[:] = out[:, -1]
            self.obs[:] = state[:, 1 : 1 + self.obs.shape[1]]

        return step

    def step_threads(self) -> Step:
        """One `MjData` a world; `mj_step` releases Python's lock, so that Python threads can step."""
        worlds_data = [mujoco.MjData(self.model) for _ in range(self.worlds)]
        for data, qpos, qvel in zip(worlds_data, self.qpos, self.qvel, strict=True):
            data.qpos[:], data.qvel[:] = qpos, qvel
        bounds = np.linspace(0, self.worlds, self.threads + 1).astype(int)
        chunks = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        positions, velocities = self._split(self.obs)

        def advance(chunk: tuple[int, int], action: NDArray[np.float32]) -> None:
            for world in range(*chunk):
                data = worlds_data[world]
                data.ctrl[:] = action[world]
                mujoco.mj_step(self.model, data, nstep=self.frame_skip)
                positions[world] = data.qpos
                velocities[world] = data.qvel

        if self.threads == 1:
            return lambda action: advance(chunks[0], action)
        pool = ThreadPoolExecutor(self.threads)
        return lambda action: list(pool.map(lambda chunk: advance(chunk, action), chunks)).clear()

    def ways(self) -> dict[str, Step]:
        """Returns the ways of stepping by name; the plain loop has one thread only."""
        several = {} if self.threads == 1 else {"threads": self.step_threads()}
        single = {"loop": self.step_threads()} if self.threads == 1 else {}
        return {
            "env": self.step_env(),
            "batch": self.step_batch(persistent=False),
            "batch persistent": self.step_batch(persistent=True),
            "rollout": self.step_rollout(),
            **several,
            **single,
        }


def _rate(step: Step, actions: NDArray[np.float32]) -> float:
    """Returns control steps a second over all worlds, for one step with each of `actions` [steps, E, A].

    A number of steps and not a time, so that every way passes through the same states: a world that lies on
    the ground costs more than one that flies.
    """
    start = time.perf_counter()
    for action in actions:
        step(action)
    return len(actions) * actions.shape[1] / (time.perf_counter() - start)


def measure_stepping(
    tasks: Sequence[str] = ("halfcheetah", "hopper"),
    threads: Sequence[int] = (1, 2),
    worlds: Sequence[int] = (32, 128),
    world_steps: int = 4096,
) -> list[StepRate]:
    """Measures every way, the repetitions interleaved so that a busy moment does not fall on one way alone.

    Args:
        tasks: standard tasks of the backend `mujoco`.
        threads: numbers of threads.
        worlds: numbers of worlds.
        world_steps: control steps of one repetition of one way, summed over worlds.
    """
    rates: list[StepRate] = []
    for task in tasks:
        for count in threads:
            for size in worlds:
                setup = _Worlds(task, size, count)
                rng = np.random.default_rng(0)
                shape = (max(1, world_steps // size), size, setup.model.nu)
                actions = rng.uniform(-1, 1, shape).astype(np.float32)
                ways = setup.ways()
                seen: dict[str, list[float]] = {way: [] for way in ways}
                for _ in range(_REPETITIONS):
                    for way, step in ways.items():
                        seen[way].append(_rate(step, actions))
                for way, values in seen.items():
                    median = statistics.median(values)
                    rates.append(
                        StepRate(task, way, count, size, median, (max(values) - min(values)) / median)
                    )
    return rates


def main() -> None:
    """Prints the measurements, as a table or with `--json` as JSON."""
    rates = measure_stepping()
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(rate) for rate in rates]))
        return
    for rate in rates:
        print(
            f"{rate.task:12} {rate.way:17} {rate.threads} threads {rate.worlds:4} worlds "
            f"{rate.steps_per_second:9.0f} steps/s  +-{50 * rate.spread:.0f} %"
        )


if __name__ == "__main__":
    main()
