"""Collectors that sleep, for the scaling bench; imports no torch, so that eight of them start quickly."""

from __future__ import annotations

import time

import numpy as np

from transport import Ring, StopSignal, set_parent_death_signal

OBS_DIM = 64
ENVS_PER_COLLECTOR = 64


def sleep_and_commit(*, ring: Ring, stop: StopSignal, step_s: float, parent_pid: int) -> None:
    """A collector without an environment: the whole path of a slot, with a sleep where the step would be."""
    set_parent_death_signal(parent_pid)
    producer = ring.producer(0)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ENVS_PER_COLLECTOR, OBS_DIM), np.float32)
    slot = producer.reserve(stop)
    following = None
    while slot is not None and (following := producer.reserve(stop)) is not None:
        time.sleep(step_s)
        slot.obs[:] = obs
        slot.action.fill(0.5)
        slot.reward.fill(1.0)
        for flags in (slot.terminated, slot.truncated, slot.cut):
            flags.fill(0)
        slot.num_final = 0
        producer.commit()
        slot = following
