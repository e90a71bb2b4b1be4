"""MotrixLab's learner alone, on one thread: updates from a full replay. Prints one line of JSON.

`learner_motrixlab.py SECONDS NUM_ENVS key=value ...` with settings as for `mxlab train`.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import time

# Sets up OpenMP as `mxlab train` does, before torch is loaded.
from motrix_rl.commands import train as command  # noqa: F401  # isort: skip
import torch
import walking
from hydra import compose, initialize_config_module
from motrix_rl_builtin.fastsac.agent import FastSacAgent
from omegaconf import OmegaConf

PACKAGES = ("motrixlab", "motrixsim", "torch", "numpy")


def agent_with_full_replay(num_envs: int, settings: list[str]) -> FastSacAgent:
    """As its trainer builds it for the walking robot; the replay holds random numbers."""
    with initialize_config_module("motrix_rl.configs", version_base=None):
        composed = compose("train", overrides=["+algo_base@algo=motrix.fastsac", *settings])
    config = OmegaConf.to_object(composed.algo.agent)
    obs, critic_obs, actions = walking.OBS_SIZE, walking.CRITIC_OBS_SIZE, walking.JOINTS
    agent = FastSacAgent(
        obs_dim=obs,
        critic_obs_dim=critic_obs,
        act_dim=actions,
        num_envs=num_envs,
        cfg=config,
        device=torch.device("cpu"),
        action_scale=torch.full((actions,), walking.ACTION_LIMIT),
        action_bias=torch.zeros(actions),
        final_obs_bootstrap=True,
    )
    agent.set_train_mode()
    none = torch.zeros(num_envs, dtype=torch.long)
    for _ in range(config.buffer_size + 1):
        agent.rb.extend(
            torch.randn(num_envs, obs),
            torch.randn(num_envs, critic_obs),
            torch.tanh(torch.randn(num_envs, actions)),
            torch.randn(num_envs),
            none,
            none,
        )
    return agent


def main() -> None:
    seconds, num_envs, *settings = sys.argv[1:]
    torch.set_num_threads(1)
    agent = agent_with_full_replay(int(num_envs), settings)
    chunk = agent.cfg.num_updates
    agent.update(2 * agent.cfg.policy_frequency)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < float(seconds) or done == 0:
        agent.update(chunk)
        done += chunk
        # Its trainer empties what updates keep for the logs from time to time.
        if done % (100 * chunk) == 0:
            agent.window_metrics.stats_and_reset()
    rate = done / (time.perf_counter() - begin)
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    print(json.dumps({"updates_per_s": rate, "versions": {"python": platform.python_version()} | versions}))


if __name__ == "__main__":
    main()
