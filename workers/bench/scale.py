"""How the data plane scales: many collectors that sleep in place of computing, one learner that only drains."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from motrix_rl.replay.buffer import ReplayBuffer
from transport import Ring, SlotLayout, StopSignal, TransportError, wait_any
from workers.assembler import CollectorEndpoint, GenerationAssembler
from workers.bench.sleepers import ENVS_PER_COLLECTOR, OBS_DIM, sleep_and_commit

COLLECTORS = (1, 2, 4, 8)
ACTION_DIM = 16
STEP_S = 0.01
RING_CAPACITY = 4
REPLAY_ROWS = 200
START_LIMIT_S = 60.0
MB = 1e6


@dataclass(frozen=True)
class ScaleReport:
    """One number of collectors.

    Attributes:
        collectors: processes that sleep and commit.
        generations_s: complete generations admitted a second.
        shards_s: slots admitted a second, over all collectors.
        reached: generations a second as a share of what the sleep alone allows.
        mb_s: bytes admitted, 1e6 a second.
        drain_ms_mb: the learner's time to take, assemble, store and give back one MB, in ms.
        drain_us_shard: the same for one slot, in microseconds.
    """

    collectors: int
    generations_s: float
    shards_s: float
    reached: float
    mb_s: float
    drain_ms_mb: float
    drain_us_shard: float


def measure_scale(collectors: int, seconds: float) -> ScaleReport:
    """Measures one number of collectors for about ``seconds`` after all of them have delivered.

    Raises:
        TransportError: a collector ended, or did not start in time.
    """
    layout = SlotLayout.for_shard(ENVS_PER_COLLECTOR, OBS_DIM, ACTION_DIM, None)
    rings = [Ring.create(layout, RING_CAPACITY) for _ in range(collectors)]
    stop = StopSignal()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=sleep_and_commit,
            kwargs={"ring": ring, "stop": stop, "step_s": STEP_S, "parent_pid": os.getpid()},
            daemon=True,
        )
        for ring in rings
    ]
    for process in processes:
        process.start()
    try:
        return _drain(rings, seconds, layout.final_offset)
    finally:
        stop.set()
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
        for ring in rings:
            ring.close()
        stop.close()


def _drain(rings: list[Ring], seconds: float, slot_bytes: int) -> ScaleReport:
    """The learner's side: everything it does with a generation but learning from it."""
    count = len(rings)
    width = ENVS_PER_COLLECTOR
    endpoints = [
        CollectorEndpoint(i, ring.consumer(), i * width, (i + 1) * width) for i, ring in enumerate(rings)
    ]
    assembler = GenerationAssembler(endpoints)
    replay = ReplayBuffer(
        num_envs=count * width,
        capacity=REPLAY_ROWS,
        obs_dim=OBS_DIM,
        critic_obs_dim=None,
        action_dim=ACTION_DIM,
        n_step=1,
        gamma=0.99,
    )
    generation = 0
    began: float | None = None
    first, busy = 0, 0.0
    deadline = time.perf_counter() + START_LIMIT_S
    while began is None or time.perf_counter() - began < seconds:
        waiting = [endpoint.consumer.filled_fd for endpoint in assembler.missing()]
        if waiting:
            wait_any(waiting, None, timeout_s=1.0)
        if began is None and time.perf_counter() > deadline:
            raise TransportError(f"not all of {count} collectors delivered within {START_LIMIT_S:g} s")
        struck = time.perf_counter()
        assembler.drain()
        while assembler.complete > generation:
            replay.append(generation, assembler.pop())
            generation += 1
        assembler.release_popped()
        busy += time.perf_counter() - struck
        if (
            began is None and generation >= RING_CAPACITY
        ):  # all have started, the rings' first fill is through
            began, first, busy = time.perf_counter(), generation, 0.0
    elapsed = time.perf_counter() - began
    shards = (generation - first) * count
    megabytes = shards * slot_bytes / MB
    return ScaleReport(
        collectors=count,
        generations_s=(generation - first) / elapsed,
        shards_s=shards / elapsed,
        reached=(generation - first) / elapsed * STEP_S,
        mb_s=megabytes / elapsed,
        drain_ms_mb=1e3 * busy / megabytes,
        drain_us_shard=1e6 * busy / shards,
    )


def scale_data(reports: list[ScaleReport]) -> list[dict[str, Any]]:
    """Plain data of the reports."""
    return [asdict(report) for report in reports]


def scale_text(reports: list[ScaleReport]) -> str:
    """A table, one line a number of collectors."""
    lines = [
        f"collectors sleep {1e3 * STEP_S:g} ms a step, {ENVS_PER_COLLECTOR} environments each, on"
        f" {len(os.sched_getaffinity(0))} CPU(s)",
        "collectors  generations/s  of the sleep's   shards/s      MB/s   drain ms/MB   us/shard",
    ]
    for r in reports:
        lines.append(
            f"{r.collectors:10d} {r.generations_s:14.1f} {r.reached:15.0%} {r.shards_s:10.0f} {r.mb_s:9.1f}"
            f" {r.drain_ms_mb:13.3f} {r.drain_us_shard:10.0f}"
        )
    return "\n".join(lines)
