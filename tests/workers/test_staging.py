"""Staging moves what it should, in the order that two streams need; a scripted pair of lanes runs as late as it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from motrix_rl.replay.buffer import ReplayBuffer
from tests.workers.rows_workers import FIELDS, SPEC, random_row, write
from transport import DeviceStorage, HostStorage, Ring, SlotLayout, SlotView
from workers.staging import DEPTH, DrainStaging

LAYOUT = SlotLayout.for_shard(4, SPEC.obs_dim, SPEC.action_dim, None)


class LateLanes:
    """Two queues; work runs only when a wait asks for it, copies at the last moment, which finds a missing wait."""

    def __init__(self) -> None:
        self._queue: list[Callable[[], None]] = []
        self.said: list[str] = []
        self._done = self._marks = 0

    def _run_until(self, mark: int) -> None:
        while self._done < mark:
            self._queue[self._done]()
            self._done += 1

    def copy(self, target: Tensor, source: Tensor, after: Any | None) -> int:
        self.said.append(f"copy after {after}")
        self._queue.append(lambda: void(target.copy_(source)))
        return len(self._queue)

    def compute_waits(self, mark: int) -> None:
        self.said.append(f"compute waits {mark}")
        self._run_until(mark)

    def compute_mark(self) -> str:
        self._marks += 1
        return f"mark {self._marks}"

    def host_waits(self, mark: int) -> None:
        self.said.append(f"host waits {mark}")
        self._run_until(mark)


def void(_: object) -> None:
    """Drops a value."""


def rings_of(*storages: Any) -> list[Ring]:
    return [Ring.create(LAYOUT, 4, storage=storage) for storage in storages]


def test_on_the_cpu_shards_pass_through() -> None:
    staging = DrainStaging("cpu")
    shards = [object(), object()]
    assert staging.stage(shards) is shards  # type: ignore[arg-type]
    staging.finished()


@pytest.mark.covers("R8")
@pytest.mark.parametrize("mix", ["host host", "host device", "device host", "device device"])
def test_any_mix_of_rings_fills_the_replay_alike(mix: str) -> None:
    kinds = [HostStorage() if kind == "host" else DeviceStorage("cpu") for kind in mix.split()]
    rings = rings_of(*kinds)
    consumers = [ring.consumer() for ring in rings]
    producers = [
        ring.producer(0, consumer.message()) for ring, consumer in zip(rings, consumers, strict=True)
    ]
    sizes: dict[str, Any] = {"num_envs": 8, "capacity": 40, "obs_dim": 3, "critic_obs_dim": None}
    sizes |= {"action_dim": 2, "n_step": 1, "gamma": 0.99}
    staged, direct = ReplayBuffer(**sizes), ReplayBuffer(**sizes)
    staging = DrainStaging("cpu", LateLanes())
    rng = np.random.default_rng(0)
    for generation in range(30):
        rows = [random_row(rng, 4) for _ in rings]
        shards: list[Any] = []
        for producer, consumer, row in zip(producers, consumers, rows, strict=True):
            slot = producer.reserve(timeout_s=0)
            assert slot is not None
            write(slot, row)
            producer.commit()
            shards.append(consumer.take())
        moved = staging.stage(shards)
        for shard in shards:
            if isinstance(shard, SlotView):
                for name in FIELDS:
                    getattr(shard, name).fill(0)  # the ring has it back and writes something else
        staged.append(generation, moved)
        staging.finished()
        for consumer in consumers:
            consumer.release()
        direct.append(generation, rows)
    mine, theirs = staged.state_dict(), direct.state_dict()
    for name in ("obs", "action", "reward", "flags", "successor", "obs_pool"):
        assert torch.equal(mine[name], theirs[name]), name
    for ring in rings:
        ring.close()


def test_each_lane_waits_for_the_other_before_it_overwrites_or_reads() -> None:
    ring = Ring.create(LAYOUT, 4)
    producer, consumer = ring.producer(0), ring.consumer()
    lanes = LateLanes()
    staging = DrainStaging("cpu", lanes)
    rng = np.random.default_rng(0)
    for _ in range(2 * DEPTH):
        slot = producer.reserve(timeout_s=0)
        assert slot is not None
        write(slot, random_row(rng, 4))
        producer.commit()
        taken = consumer.take()
        assert taken is not None
        staging.stage([taken])
        staging.finished()
        consumer.release()
    # A new buffer is filled with zeros by the compute lane (marks 1 and 3), which marks the end of a generation (2).
    assert lanes.said[:4] == ["copy after mark 1", "compute waits 1", "copy after mark 3", "compute waits 2"]
    # The third generation uses the first set again: pinned memory is free, and compute is done with the set.
    assert lanes.said[4:7] == ["host waits 1", "copy after mark 2", "compute waits 3"]
    ring.close()
