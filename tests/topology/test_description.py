"""Machine descriptions: what is written is read back, what others write is understood, faults are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topology.strategies import UNHURRIED, machines
from tests.topology.test_resolve import request
from topology import MachineError, MachineSpec, resolve_trainer_topology
from topology.description import describe_machine, parse_machine

SMALL = {"name": "small", "arch": "x86_64", "numa": [{"id": 0, "cpus": "0-3"}], "gpus": []}


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "machine.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@UNHURRIED
@given(st.data())
def test_what_is_saved_is_loaded(data: st.DataObject) -> None:
    machine = data.draw(machines())
    again = parse_machine(json.loads(json.dumps(describe_machine(machine))))
    assert [n for n in again.notes if "affinity" not in n] == list(machine.notes)
    for field in (
        "nodes",
        "siblings",
        "gpus",
        "cpu_quota",
        "memory_available",
        "memory_limit",
        "arch",
        "name",
    ):
        assert getattr(again, field) == getattr(machine, field)


def test_this_machine_round_trips(tmp_path: Path) -> None:
    machine = MachineSpec.detect()
    machine.save(tmp_path / "m.json")
    assert MachineSpec.load(tmp_path / "m.json") == machine


@pytest.mark.covers("T6")
def test_described_machines_round_trip(layouts_file: Path, machine_name: str, tmp_path: Path) -> None:
    machine = MachineSpec.load(layouts_file, machine_name)
    machine.save(tmp_path / "m.json")
    again = MachineSpec.load(tmp_path / "m.json")
    assert again == machine
    assert resolve_trainer_topology(again, request()) == resolve_trainer_topology(machine, request())


def test_siblings_follow_the_numbering_of_the_architecture(layouts_file: Path) -> None:
    load = lambda name: MachineSpec.load(layouts_file, name)  # noqa: E731
    assert (0, 128) in load("epyc7742_8xA100_nps4").siblings
    assert (1, 41) in load("dell_c4140_4xV100_interleaved").siblings
    assert tuple(range(8)) in load("power8_nonconsecutive").siblings
    assert (0,) in load("gh200_harvard").siblings
    half = load("container_cpuset_a10")
    assert (24, 88) in half.siblings
    assert len(half.allowed_cpus) == 32


@pytest.mark.covers("T1")
@pytest.mark.parametrize(
    ("name", "learners", "nodes"),
    [
        ("epyc7742_8xA100_nps4", 8, [3, 3, 1, 1, 7, 7, 5, 5]),
        ("snc_4node_8gpu_3_1_2", 8, [0, 0, 0, 1, 2, 2, None, None]),
        ("snc3_granite_rapids_8gpu", 4, [0, 0, 2, None]),
        ("slurm_cpuset_a100_half_empty", 8, [0] * 8),
        ("gh200_lambda_vm_container", 1, [0]),
        ("cloud_vm_numa_na", 1, [0]),
        ("power8_nonconsecutive", 1, [None]),
        ("threadripper_2950x_2gpu_2nodes", 2, [None, None]),
        ("4socket_xeon6130_hetero_gpus", 4, [None] * 4),
        ("cpu_only_4socket_opteron", 4, [0, 1, 2, 3]),
        ("4socket_cgroup_partial", 2, [0, 1]),
    ],
)
def test_nodes_of_ranks(layouts_file: Path, name: str, learners: int, nodes: list[int | None]) -> None:
    machine = MachineSpec.load(layouts_file, name)
    plan = resolve_trainer_topology(machine, request(num_learners=learners))
    assert [learner.numa_node for learner in plan.learners] == nodes


@pytest.mark.parametrize(
    ("numa", "expected"),
    [(1, (1,)), (None, ()), (-1, ()), ("N/A", ()), ("", ()), ("0-1", (0, 1)), ("1", (1,)), ([1, 0], (0, 1))],
)
def test_gpu_nodes_as_people_post_them(numa: object, expected: tuple[int, ...]) -> None:
    machine = parse_machine({**SMALL, "gpus": [{"index": 0, "numa": numa}]})
    assert machine.gpus[0].numa_nodes == expected


def test_unknown_keys_are_ignored_with_a_note() -> None:
    machine = parse_machine({**SMALL, "vendor": "x", "gpus": [{"index": 0, "watts": 9}]})
    assert machine.notes == (
        "description: key 'vendor' is not known and was ignored",
        "description: key 'gpus.watts' is not known and was ignored",
    )


def test_one_machine_of_a_list(tmp_path: Path) -> None:
    two = write(tmp_path, [SMALL, {**SMALL, "name": "other"}])
    assert MachineSpec.load(two, "other").name == "other"
    with pytest.raises(MachineError, match="2 machines; choose one by name: small, other"):
        MachineSpec.load(two)
    with pytest.raises(MachineError, match="no machine 'othr'; the nearest name is 'other'"):
        MachineSpec.load(two, "othr")
    assert MachineSpec.load(write(tmp_path, [SMALL])).name == "small"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "is not JSON"),
        ([], "neither a machine"),
        (3, "neither a machine"),
        ({"name": "x"}, "numa: Field required"),
        ({**SMALL, "numa": []}, "has no CPU"),
        ({**SMALL, "numa": [{"id": 0, "cpus": "0-"}]}, "'0-' is not a CPU number"),
        ({**SMALL, "numa": [{"id": 0, "cpus": "0"}, {"id": 0, "cpus": "1"}]}, "names a NUMA node twice"),
        ({**SMALL, "numa": [{"id": 0, "cpus": "0-1"}, {"id": 1, "cpus": "1"}]}, "a CPU on two NUMA nodes"),
        ({**SMALL, "gpus": [{"index": 0}, {"index": 0}]}, "GPU indices must differ"),
        ({**SMALL, "gpus": [{"index": 0, "numa": "x"}]}, "gpus.0.numa"),
        ({**SMALL, "ram_gb": "much"}, "ram_gb"),
    ],
)
def test_faults_are_named_in_one_line(tmp_path: Path, data: object, words: str) -> None:
    with pytest.raises(MachineError) as caught:
        MachineSpec.load(write(tmp_path, data))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file() -> None:
    with pytest.raises(MachineError, match=r"cannot read .*No such file"):
        MachineSpec.load("/nonexistent/machine.json")


def test_no_allowed_cpu_is_refused_by_the_resolver() -> None:
    machine = parse_machine({**SMALL, "allowed_cpus": ""})
    with pytest.raises(MachineError, match="no CPU that this process may use"):
        resolve_trainer_topology(machine, request())
