"""What every trainer here shares: the clock of a training, its evaluations, and the lines that tell of them.

Imports numpy and Gymnasium only, both of the environment that the trainer runs in.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

Act = Callable[[np.ndarray], np.ndarray]
"""Deterministic actions [E, A] for observations [E, O]."""


def arguments() -> argparse.Namespace:
    """The command line of a trainer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True, help="Gymnasium's id of the environment")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threshold", type=float, required=True, help="return at which to stop")
    parser.add_argument("--limit", type=float, required=True, help="seconds of training at which to stop")
    parser.add_argument("--episodes", type=int, required=True, help="episodes of an evaluation")
    parser.add_argument("--every", type=int, required=True, help="environment steps between evaluations")
    parser.add_argument("--events", required=True, help="file that gets a JSON line for each thing told")
    return parser.parse_args()


def mean_return(envs: list[gymnasium.Env], act: Act) -> float:
    """Mean undiscounted return of one episode in each environment, all of them stepped side by side."""
    observations = np.stack([env.reset(seed=10_000 + k)[0] for k, env in enumerate(envs)])
    returns = np.zeros(len(envs))
    playing = np.ones(len(envs), dtype=bool)
    while playing.any():
        actions = act(observations)
        for k in np.flatnonzero(playing):
            observations[k], reward, terminated, truncated, _ = envs[k].step(actions[k])
            returns[k] += float(reward)
            playing[k] = not (terminated or truncated)
    return float(returns.mean())


class Recording:
    """The clock, which stands still during evaluations, and the record of one training.

    Args:
        given: the trainer's command line.
        packages: distributions whose versions are told.
        settings: what else somebody must know who wants to repeat it.
    """

    def __init__(self, given: argparse.Namespace, packages: list[str], settings: dict[str, Any]) -> None:
        self._given = given
        self._facts = {
            "versions": {"python": platform.python_version()}
            | {package: importlib.metadata.version(package) for package in packages},
            "settings": settings,
        }
        self._envs = [gymnasium.make(given.env) for _ in range(given.episodes)]
        self._started = 0.0
        self._paused_s = 0.0

    def start(self) -> None:
        """Starts the clock: everything is imported and built, and training is the next thing that happens."""
        self._started = time.monotonic()
        self._write({"kind": "start", "time": time.time(), **self._facts})

    @property
    def elapsed_s(self) -> float:
        """Seconds of training so far."""
        return time.monotonic() - self._started - self._paused_s

    def evaluate(self, act: Act, steps: int, updates: int, elapsed_s: float | None = None) -> bool:
        """Plays the episodes and tells the mean return; the clock stands still meanwhile.

        Args:
            act: the policy as it is now, without noise.
            steps: environment steps taken for it.
            updates: gradient updates made for it.
            elapsed_s: where the clock stood when the policy was saved; None = now.

        Returns:
            Whether to stop: the threshold is reached, or the time is up.
        """
        at = self.elapsed_s if elapsed_s is None else elapsed_s
        before = time.monotonic()
        mean = mean_return(self._envs, act)
        self._paused_s += time.monotonic() - before
        point = {"elapsed_s": at, "steps": steps, "updates": updates, "return": mean}
        self._write({"kind": "eval", **point})
        return mean >= self._given.threshold or at >= self._given.limit

    def _write(self, event: dict[str, Any]) -> None:
        with open(self._given.events, "a", encoding="utf-8") as events:
            events.write(json.dumps(event) + "\n")
