"""Detection against recorded trees, and on the machine that runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.topology.trees import Tree
from topology import MachineError, MachineSpec

TWO_NODES = {0: "0-3,8-11", 1: "4-7,12-15"}
PAIRS = tuple(f"{i},{i + 8}" for i in range(8))


def test_whole_machine(tmp_path: Path) -> None:
    tree = Tree(
        nodes=TWO_NODES, siblings=PAIRS, allowed="0-15", mems="0-1", node_memory_kb={0: 1024, 1: 2048}
    )
    machine = MachineSpec.detect(tree.write(tmp_path), environ={})
    assert machine.name == "recorded"
    assert [node.id for node in machine.nodes] == [0, 1]
    assert machine.nodes[0].cpus == (0, 1, 2, 3, 8, 9, 10, 11)
    assert machine.siblings[0] == (0, 8)
    assert len(machine.siblings) == 8
    assert machine.nodes[1].memory_bytes == 2048 * 1024
    assert machine.memory_available == 32768000 * 1024
    assert machine.gpus == ()
    assert machine.notes == ()


@pytest.mark.covers("T2")
def test_affinity_mask_cuts_cpus_and_siblings(tmp_path: Path) -> None:
    tree = Tree(nodes=TWO_NODES, siblings=PAIRS, allowed="0-1,8", mems="0")
    machine = MachineSpec.detect(tree.write(tmp_path), environ={})
    assert machine.allowed_cpus == (0, 1, 8)
    assert machine.siblings == ((0, 8), (1,))
    assert [node.memory_allowed for node in machine.nodes] == [True, False]
    assert machine.usable_nodes == (machine.nodes[0],)
    assert "3 of 16 CPUs: 0-1,8" in machine.notes[0]


def test_node_ids_with_gaps_and_nodes_without_cpus(tmp_path: Path) -> None:
    tree = Tree(nodes={0: "0-3", 8: "4-7", 255: ""}, node_memory_kb={255: 4096})
    machine = MachineSpec.detect(tree.write(tmp_path), environ={})
    assert [node.id for node in machine.nodes] == [0, 8, 255]
    assert machine.node(255) is not None
    assert [node.id for node in machine.usable_nodes] == [0, 8]


def test_kernel_without_numa_has_node_zero(tmp_path: Path) -> None:
    machine = MachineSpec.detect(Tree(online="0-3").write(tmp_path), environ={})
    assert [(node.id, node.cpus) for node in machine.nodes] == [(0, (0, 1, 2, 3))]


def test_cpus_from_cpuinfo_where_sys_is_missing(tmp_path: Path) -> None:
    Tree(files={"proc/cpuinfo": "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1"}).write(tmp_path)
    (tmp_path / "sys/devices/system/cpu/online").unlink()
    assert MachineSpec.detect(tmp_path, environ={}).allowed_cpus == (0, 1)


def test_empty_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no CPU"):
        MachineSpec.detect(tmp_path, environ={})


V2 = {
    "proc/self/cgroup": "0::/job/step",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
}


@pytest.mark.covers("T2", "T6")
def test_cgroup_v2_tightest_level_counts(tmp_path: Path) -> None:
    files = {
        **V2,
        "sys/fs/cgroup/job/cpu.max": "250000 100000",
        "sys/fs/cgroup/job/memory.max": "8589934592",
        "sys/fs/cgroup/job/memory.current": "4294967296",
        "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 1073741824",
        "sys/fs/cgroup/job/step/cpu.max": "max 100000",
        "sys/fs/cgroup/job/step/memory.max": "max",
        "sys/fs/cgroup/job/step/cpuset.cpus.effective": "0-3",
    }
    machine = MachineSpec.detect(Tree(nodes=TWO_NODES, files=files).write(tmp_path), environ={})
    assert machine.allowed_cpus == (0, 1, 2, 3)
    assert machine.cpu_quota == 2.5
    assert machine.cpu_budget == 2
    assert machine.memory_limit == 8 << 30
    assert machine.memory_limit_free == 5 << 30  # 8 - 4 used + 1 of droppable cache
    assert machine.memory_free == 5 << 30


@pytest.mark.covers("T2")
def test_cgroup_v1_with_a_mount_that_shows_our_group_as_its_top(tmp_path: Path) -> None:
    mounts = [
        f"{n} 1 0:{n} /docker/abc /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}"
        for n, name in enumerate(("cpu,cpuacct", "cpuset", "memory"))
    ]
    files = {
        "proc/self/cgroup": "4:cpuset:/docker/abc\n3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/",
        "proc/self/mountinfo": "\n".join(mounts),
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "2-9",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "73741824",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0",
    }
    machine = MachineSpec.detect(Tree(nodes=TWO_NODES, files=files).write(tmp_path), environ={})
    assert machine.allowed_cpus == tuple(range(2, 10))
    assert machine.cpu_quota == 4.0
    assert machine.memory_limit_free == 1_000_000_000


def test_cgroup_v1_unlimited_is_no_limit(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "3:memory:/\n2:cpu:/",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    machine = MachineSpec.detect(Tree(nodes=TWO_NODES, files=files).write(tmp_path), environ={})
    assert machine.memory_limit is None
    assert machine.cpu_quota is None
    assert machine.memory_free == machine.memory_available


def test_group_outside_the_mount_falls_back_to_its_top(tmp_path: Path) -> None:
    files = {**V2, "proc/self/cgroup": "0::/../../elsewhere", "sys/fs/cgroup/cpu.max": "100000 100000"}
    assert MachineSpec.detect(Tree(nodes=TWO_NODES, files=files).write(tmp_path), environ={}).cpu_quota == 1.0


def test_this_machine() -> None:
    machine = MachineSpec.detect(environ={"CUDA_VISIBLE_DEVICES": ""})
    assert set(machine.allowed_cpus) <= os.sched_getaffinity(0)
    assert machine.allowed_cpus
    assert sorted(cpu for group in machine.siblings for cpu in group) == list(machine.allowed_cpus)
    assert machine.gpus == ()
    assert machine.memory_free is not None


@pytest.mark.covers("T2")
def test_this_process_affinity_is_honoured() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert MachineSpec.detect().allowed_cpus == (min(before),)
    finally:
        os.sched_setaffinity(0, before)
