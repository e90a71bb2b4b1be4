"""Trains with the SAC of Stable-Baselines3 (`sb3`) or SBX (`sbx`), all settings left as the library has them."""

from __future__ import annotations

import sys

import gymnasium
import torch
from recording import Recording, arguments
from stable_baselines3.common.callbacks import BaseCallback

#: Steps without end; the recording says when to stop.
FOREVER = 10**9


class Evaluations(BaseCallback):
    """Evaluates every so many steps, and once more when the time is up."""

    def __init__(self, recording: Recording, every: int, limit_s: float) -> None:
        super().__init__()
        self._recording, self._every, self._limit_s = recording, every, limit_s

    def _on_step(self) -> bool:
        if self.num_timesteps % self._every and self._recording.elapsed_s < self._limit_s:
            return True
        updates = self.model._n_updates
        return not self._recording.evaluate(self._act, self.num_timesteps, updates)

    def _act(self, observations):
        return self.model.predict(observations, deterministic=True)[0]


def main() -> None:
    library = sys.argv.pop(1)
    given = arguments()
    if library == "sbx":
        from sbx import SAC

        packages = ["sbx-rl", "jax", "jaxlib", "flax", "stable-baselines3"]
        model = SAC("MlpPolicy", gymnasium.make(given.env), seed=given.seed)
    else:
        from stable_baselines3 import SAC

        packages = ["stable-baselines3", "torch"]
        model = SAC("MlpPolicy", gymnasium.make(given.env), seed=given.seed, device="cpu")
    settings = {"policy": "MlpPolicy", "else": "defaults", "torch_threads": torch.get_num_threads()}
    recording = Recording(given, [*packages, "gymnasium", "mujoco", "numpy"], settings)
    recording.start()
    model.learn(FOREVER, callback=Evaluations(recording, given.every, given.limit))


if __name__ == "__main__":
    main()
