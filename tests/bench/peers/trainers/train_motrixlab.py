"""Trains with the asynchronous FastSAC of MotrixLab, on Gymnasium's own environments.

MotrixLab's wheels carry no task, and returns in its own simulator would not be those of the other peers, so its
collector is given worlds of Gymnasium, stepped one after the other. Networks, losses and everything else are its
defaults but for `SETTINGS`: its default batch of 8192 is meant for a GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np

# `motrix_rl` is here MotrixLab's package, which has the name of ours. Its command sets up OpenMP as `mxlab train`
# does, which must be before torch is loaded.
from motrix_rl.commands import train as command  # isort: skip
from motrix_env_core import registry
from motrix_env_core.array.env import ArrayEnv, FinalObs, NpObs
from motrix_env_core.base import EnvCfg
from motrix_env_core.config import configclass
from motrix_env_core.config.scene import SceneCfg
from recording import Recording, arguments

TASK = "peer-gymnasium"
#: `num_envs` has no default; those of the other two are meant for a GPU.
SETTINGS = {"num_envs": 64, "batch_size": 256, "num_updates": 4}
FOREVER = 10**9
#: Seconds between two looks for a new checkpoint.
LOOK_S = 0.05


@configclass
class WorldsCfg(EnvCfg):
    """Which environment; the scene is asked for, and empty."""

    scene: SceneCfg = SceneCfg()
    env_id: str = ""


class Worlds(ArrayEnv):
    """Worlds of a Gymnasium environment behind MotrixLab's interface."""

    def __init__(self, cfg, num_envs=1):
        super().__init__(cfg, num_envs)
        # Without the time limit's wrapper: the base class counts steps and truncates.
        self._worlds = [gymnasium.make(cfg.env_id).unwrapped for _ in range(num_envs)]
        for k, world in enumerate(self._worlds):
            world.reset(seed=np.random.randint(2**31) + k)
        self._now = np.zeros((num_envs, *self._worlds[0].observation_space.shape), np.float32)

    @property
    def observation_space(self):
        space = self._worlds[0].observation_space
        return gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    @property
    def action_space(self):
        return self._worlds[0].action_space

    def _max_episode_steps(self):
        return gymnasium.spec(self._cfg.env_id).max_episode_steps

    def apply_action(self, actions, state):
        for k, world in enumerate(self._worlds):
            self._now[k], state.reward[k], state.terminated[k], _, _ = world.step(actions[k])
        return state

    def physics_step(self):
        """Done by `apply_action`: a world of Gymnasium acts and steps at once."""

    def compute_transition(self, state):
        return state

    def _capture_final_obs(self, env_ids):
        return FinalObs(env_ids=env_ids.copy(), obs=NpObs(policy=self._now[env_ids].copy()))

    def reset(self, env_ids):
        for k in env_ids:
            self._now[k] = self._worlds[k].reset()[0]

    def compute_observation(self, state):
        return state.replace(obs=NpObs(policy=self._now.copy()))

    def create_renderer(self, config):
        raise NotImplementedError


class Evaluations(threading.Thread):
    """Evaluates each checkpoint while the worker processes stand still, and ends everything in the end."""

    def __init__(self, given, recording: Recording, agent_config) -> None:
        super().__init__(daemon=True)
        self._given, self._recording, self._config = given, recording, agent_config
        self._manifests = Path("runs").resolve()

    def run(self) -> None:
        newest = ""
        while True:
            time.sleep(LOOK_S)
            due = self._recording.elapsed_s >= self._given.limit
            path = self._saved()
            if path is not None and path.name != newest:
                newest = path.name
                due |= self._evaluate(path)
            if due:
                break
        for worker in multiprocessing.active_children():
            worker.kill()
        os._exit(0)

    def _saved(self) -> Path | None:
        """The newest checkpoint; it is named only after it has been written."""
        for manifest in self._manifests.glob("**/manifest.json"):
            try:
                named = json.loads(manifest.read_text())["artifacts"]["latest_training_state"]["path"]
            except (ValueError, KeyError):
                continue
            return manifest.parent / named
        return None

    def _evaluate(self, path: Path) -> bool:
        import torch

        at = self._recording.elapsed_s
        workers = multiprocessing.active_children()
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        saved = torch.load(path, map_location="cpu", weights_only=False)
        path.unlink()  # a hundred of them would be gigabytes
        agent = self._agent()
        agent.load_state_dict(saved, load_optimizers=False)
        agent.actor.eval()
        agent.obs_normalizer.eval()

        def act(observations):
            return agent.act(torch.as_tensor(observations, dtype=torch.float32), deterministic=True).numpy()

        steps = saved["global_step"] * SETTINGS["num_envs"]
        done = self._recording.evaluate(act, steps, saved["update_idx"], at)
        for worker in workers:
            os.kill(worker.pid, signal.SIGCONT)
        return done

    def _agent(self):
        import torch
        from motrix_rl_builtin.fastsac.agent import FastSacAgent

        env = gymnasium.make(self._given.env)
        low, high = (torch.as_tensor(bound) for bound in (env.action_space.low, env.action_space.high))
        (size,), (actions,) = env.observation_space.shape, env.action_space.shape
        return FastSacAgent(
            size, size, actions, 1, self._config, torch.device("cpu"), (high - low) / 2, (high + low) / 2
        )


def train_config(given):
    """MotrixLab's defaults for `mxlab train` with `SETTINGS` and what the measurement needs."""
    from hydra import compose, initialize_config_module

    from motrix_rl.cli import to_typed_config
    from motrix_rl.config import TaskMeta, TrainConfig

    overrides = [
        "+algo_base@algo=motrix.fastsac",
        f"num_envs={SETTINGS['num_envs']}",
        "play_num_envs=1",
        f"seed={given.seed}",
        f"checkpoint.interval={max(1, given.every // SETTINGS['num_envs'])}",
        f"algo.agent.batch_size={SETTINGS['batch_size']}",
        f"algo.agent.num_updates={SETTINGS['num_updates']}",
        f"algo.trainer.num_learning_iterations={FOREVER}",
    ]
    with initialize_config_module("motrix_rl.configs", version_base=None):
        composed = compose("train", overrides=overrides)
    composed.task = TaskMeta(env=TASK, rllib="motrix", algo="fastsac")
    return to_typed_config(composed, TrainConfig)


def main() -> None:
    given = arguments()
    registry.register_env_config(TASK, lambda: WorldsCfg(env_id=given.env), cfg_type=WorldsCfg)
    registry.register_env(TASK, Worlds)
    config = train_config(given)
    packages = ["motrixlab", "torch", "gymnasium", "mujoco", "numpy"]
    recording = Recording(given, packages, {**SETTINGS, "else": "defaults"})

    from motrix_rl_builtin.fastsac.async_impl.transport.handshake import StartupHandshake

    let_go = StartupHandshake.release

    def release(handshake) -> None:
        """The barrier after the workers' boot falls; it is called again when the run ends."""
        if not handshake.start_event.is_set():
            recording.start()
            Evaluations(given, recording, config.algo.agent).start()
        let_go(handshake)

    StartupHandshake.release = release
    command.run(config)


if __name__ == "__main__":
    main()
