"""Shards of several rings become complete generations, in order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.workers.rows_workers import SPEC, random_row, write
from transport import Ring, RingProducer, SlotLayout, TransportError
from workers.assembler import CollectorEndpoint, GenerationAssembler

ENVS = 2


def make(count: int, start: int = 0, capacity: int = 4) -> tuple[list[RingProducer], GenerationAssembler]:
    layout = SlotLayout.for_shard(ENVS, SPEC.obs_dim, SPEC.action_dim, None)
    rings = [Ring.create(layout, capacity, start_generation=start, poison=True) for _ in range(count)]
    ends = [CollectorEndpoint(i, ring.consumer(), i * ENVS, (i + 1) * ENVS) for i, ring in enumerate(rings)]
    return [ring.producer() for ring in rings], GenerationAssembler(ends, start)


def put(producer: RingProducer, rng: np.random.Generator, value: float) -> bool:
    slot = producer.reserve(timeout_s=0)
    if slot is None:
        return False
    row = random_row(rng, ENVS)
    row.reward[:] = value
    write(slot, row)
    producer.commit()
    return True


@pytest.mark.covers("R8")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_generations_come_whole_and_in_order_whatever_the_order_of_arrival(count: int) -> None:
    rng = np.random.default_rng(count)
    producers, assembler = make(count, start=7)
    written = [7] * count
    popped: list[list[tuple[int, float]]] = []
    while len(popped) < 60:
        ring = int(rng.integers(count))
        while rng.random() < 0.6 and put(producers[ring], rng, 100.0 * ring + written[ring]):
            written[ring] += 1
        assembler.drain()
        assert assembler.complete == min(written)
        while assembler.complete > assembler.next_generation and rng.random() < 0.8:
            shards = assembler.pop()
            popped.append([(shard.generation, float(shard.reward[0])) for shard in shards])
            if rng.random() < 0.5:
                assembler.release_popped()
        if min(written) - assembler.next_generation < 2:
            assembler.release_popped()
    for generation, shards in enumerate(popped, start=7):
        assert shards == [(generation, 100.0 * ring + generation) for ring in range(count)]


@pytest.mark.covers("R8")
def test_a_collector_leads_the_slowest_by_the_capacity_of_its_ring_at_most() -> None:
    rng = np.random.default_rng(0)
    producers, assembler = make(2, capacity=4)
    while put(producers[0], rng, 0.0):
        assembler.drain()
    assert producers[0].next_generation == 4
    assert [endpoint.collector for endpoint in assembler.missing()] == [1]
    put(producers[1], rng, 0.0)
    assembler.drain()
    assert assembler.missing() == []
    assembler.pop()
    assert not put(producers[0], rng, 0.0), "a slot was given back before it was read"
    assembler.release_popped()
    assert put(producers[0], rng, 0.0)


@pytest.mark.covers("R8")
def test_a_shard_of_another_generation_is_refused() -> None:
    producers, assembler = make(2)
    rng = np.random.default_rng(0)
    put(producers[0], rng, 0.0)
    put(producers[1], rng, 0.0)
    assembler.drain()
    assembler.next_generation = 1
    with pytest.raises(TransportError, match=r"collector 0 delivered generation 0 where 1 was due"):
        assembler.pop()


@pytest.mark.covers("R2", "R8")
def test_slots_of_a_dead_incarnation_and_of_its_successor_follow_each_other() -> None:
    rng = np.random.default_rng(3)
    layout = SlotLayout.for_shard(ENVS, SPEC.obs_dim, SPEC.action_dim, None)
    ring = Ring.create(layout, 4, poison=True)
    endpoint = CollectorEndpoint(0, ring.consumer(), 0, ENVS)
    assembler = GenerationAssembler([endpoint])
    for life in range(3):
        producer = ring.producer(life)
        put(producer, rng, life)
        put(producer, rng, life)
        producer.reserve(timeout_s=0)  # dies holding one
        assembler.drain()
        endpoint.consumer.recover()
        if life < 2:
            assembler.pop()
            assembler.pop()
            assembler.release_popped()
    shards = [assembler.pop()[0], assembler.pop()[0]]
    assert [(shard.generation, shard.incarnation) for shard in shards] == [(4, 2), (5, 2)]
    assert all(a.generation + 1 == b.generation for a, b in pairwise(shards))


def test_a_learner_without_collectors_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one collector"):
        GenerationAssembler([])
