"""Staging, mailbox and probe with a real device: what the tests on the CPU cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from motrix_rl.replay.buffer import ReplayBuffer
from tests.gpu.marks import NEEDS_GPU
from tests.gpu.procs_gpu import read_weights
from tests.transport.conftest import spawn, stop
from tests.workers.rows_workers import SPEC, random_row, write
from transport import DeviceWeightMailbox, Ring, SlotLayout
from transport.probe import why_no_ipc
from workers.staging import DrainStaging

__all__ = ["spawn", "stop"]

pytestmark = NEEDS_GPU


@pytest.mark.covers("R7")
@pytest.mark.timeout(180)
def test_this_machine_can_share_device_memory() -> None:
    assert why_no_ipc("cuda:0") is None


@pytest.mark.covers("R8", "R6")
def test_staged_generations_fill_the_replay_as_direct_ones_do() -> None:
    ring = Ring.create(SlotLayout.for_shard(64, SPEC.obs_dim, SPEC.action_dim, None), 4)
    producer, consumer = ring.producer(0), ring.consumer()
    sizes: dict[str, Any] = {"num_envs": 64, "capacity": 300, "obs_dim": 3, "critic_obs_dim": None}
    sizes |= {"action_dim": 2, "n_step": 1, "gamma": 0.99}
    staged, direct = ReplayBuffer(**sizes, device="cuda:0"), ReplayBuffer(**sizes)
    staging = DrainStaging("cuda:0")
    rng = np.random.default_rng(0)
    busy = torch.randn(2048, 2048, device="cuda:0")
    for generation in range(200):
        row = random_row(rng, 64)
        slot = producer.reserve(timeout_s=0)
        assert slot is not None
        write(slot, row)
        producer.commit()
        taken = consumer.take()
        assert taken is not None
        for _ in range(3):
            busy = torch.tanh(busy @ busy)  # updates that are still running
        staged.append(generation, staging.stage([taken]))
        staging.finished()
        consumer.release()
        direct.append(generation, [row])
    mine, theirs = staged.state_dict(), direct.state_dict()
    for name in ("obs", "action", "reward", "flags", "successor", "obs_pool"):
        assert torch.equal(mine[name], theirs[name]), name
    ring.close()


@pytest.mark.covers("R4", "R6")
@pytest.mark.timeout(180)
def test_weights_over_cuda_ipc_are_never_a_mixture(spawn: Any, stop: Any) -> None:
    mailbox = DeviceWeightMailbox.create_on("cuda:0", 4 * 100_000)
    writer = mailbox.writer()
    process = spawn(read_weights, mailbox=mailbox.for_reader(), message=mailbox.message(), stop=stop)
    for version in range(2000):
        writer.publish(version, np.full(100_000, version, np.float32))
    stop.set()
    process.join(60)
    assert process.exitcode == 0
    mailbox.close()
