"""T6: bytes needed beside bytes there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.topology.test_resolve import machine, request
from topology import (
    MachineSpec,
    TopologyError,
    check_memory,
    render_plan,
    require_memory,
    resolve_trainer_topology,
)
from topology.machine import GIB
from topology.memory import account, gib

PLAIN = {"worker_host_bytes": 0, "slot_header_bytes": 0}


def findings(spec: MachineSpec, **options: object):
    wish = request(**{**PLAIN, **options})
    return check_memory(spec, resolve_trainer_topology(spec, wish), wish)


@pytest.mark.covers("T6")
def test_the_account_adds_up() -> None:
    spec = machine({0: "0-7"}, memory_available=GIB)
    wish = request(
        **PLAIN, num_learners=2, num_collectors=4, slot_bytes_per_env=100, ring_capacity=5, replay_bytes=1000,
        policy_bytes=7, learner_bytes=11,
    )  # fmt: skip
    sizes = {item.what: item.size for item in account(resolve_trainer_topology(spec, wish), wish)}
    assert sizes == {
        "rings of 5 slots": 64 * 100 * 5,
        "replay": 1000,
        "networks and optimisers": 22,
        "weight mailboxes": 21,
    }


@pytest.mark.covers("T6")
@pytest.mark.parametrize(("free", "level"), [(1000, "ok"), (901, "warning"), (899, "error"), (None, "ok")])
def test_levels(free: int | None, level: str) -> None:
    (host,) = findings(machine({0: "0-7"}, memory_available=free), replay_bytes=900)
    assert (host.level, host.needed, host.free) == (level, 900, free)


@pytest.mark.covers("T6")
def test_the_cgroup_limit_counts_before_available_memory() -> None:
    spec = machine({0: "0-7"}, memory_available=100 * GIB, memory_limit=4 * GIB, memory_limit_free=GIB)
    (host,) = findings(spec, replay_bytes=2 * GIB)
    assert host.level == "error"
    assert "cgroup limit 4.0 GiB" in host.message
    assert "1.0 GiB is free" in host.message
    wish = request(**PLAIN, replay_bytes=2 * GIB)
    with pytest.raises(TopologyError, match="buffer_size"):
        require_memory(spec, resolve_trainer_topology(spec, wish), wish)


@pytest.mark.covers("T6")
def test_replay_counts_on_the_gpu_that_holds_it() -> None:
    spec = machine({0: "0-7"}, (0, 0), memory_available=GIB)
    spec = replace(spec, gpus=tuple(replace(gpu, memory_bytes=2 * GIB) for gpu in spec.gpus))
    host, first, second = findings(spec, num_learners=2, replay_bytes=4 * GIB)
    assert host.level == "ok"
    assert (first.place, second.place) == ("cuda:0", "cuda:1")
    assert first.level == second.level == "error"
    assert first.needed == 2 * GIB + (512 << 20)


def test_device_rings_take_device_memory_and_a_context_each() -> None:
    spec = machine({0: "0-7"}, (0,), memory_available=GIB)
    _, gpu = findings(spec, num_collectors=2, transition_ipc="on", slot_bytes_per_env=10, ring_capacity=4)
    assert gpu.needed == 64 * 10 * 4 + 3 * (512 << 20)


def test_a_small_node_is_a_warning() -> None:
    spec = machine({0: "0-7"}, memory_available=GIB)
    spec = replace(spec, nodes=tuple(replace(node, memory_bytes=100) for node in spec.nodes))
    _, node = findings(spec, replay_bytes=1000)
    assert (node.level, node.place) == ("warning", "node 0")


def test_replay_is_divided_over_all_machines() -> None:
    spec = machine({0: "0-7"}, memory_available=GIB)
    (host,) = findings(spec, replay_bytes=1000, world={"nnodes": 4, "node_rank": 1})
    assert host.needed == 250


@pytest.mark.covers("T6")
def test_plan_of_a_server_with_eight_gpus_on_any_machine(layouts_file: Path) -> None:
    spec = MachineSpec.load(layouts_file, "dgx_h100_8gpu")
    wish = request(4096, 8192, num_learners=8, num_collectors=16, replay_bytes=64 * GIB)
    plan = resolve_trainer_topology(spec, wish)
    assert [r.numa_node for r in plan.learners] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not plan.cpus_shared
    text = render_plan(spec, plan, wish)
    assert "cuda:7 (NVIDIA H100 80GB HBM3): needs 8.5 GiB, 80.0 GiB is on it" in text
    assert "/dev/shm does not matter" in text


def test_sizes_for_people() -> None:
    assert [gib(n) for n in (0, 1023, 1024, 1 << 20, 3 * GIB, None)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "3.0 GiB", "unknown",
    ]  # fmt: skip
