"""Plans as people and programs read them; a golden file for every described machine.

After a change that is meant to alter plans, write the files anew and read the difference:

    UPDATE_GOLDEN=1 python -m pytest tests/topology/test_plan_text.py && git diff tests/topology/golden
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.topology.test_resolve import machine
from topology import Gpu, MachineSpec, TrainerRequest, render_plan, resolve_trainer_topology, to_json
from topology.machine import GIB

GOLDEN = Path(__file__).parent / "golden"

DEFAULT = TrainerRequest(
    num_envs=2048,
    batch_size=8192,
    slot_bytes_per_env=1500,
    replay_bytes=6 * GIB,
    policy_bytes=2 << 20,
    learner_bytes=GIB,
)


def compare(name: str, spec: MachineSpec, wish: TrainerRequest) -> None:
    text = render_plan(spec, resolve_trainer_topology(spec, wish), wish)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"the plan of {name} changed; see the top of {Path(__file__).name}"


@pytest.mark.covers("T3", "T6")
def test_default_plan(layouts_file: Path, machine_name: str) -> None:
    compare(machine_name, MachineSpec.load(layouts_file, machine_name), DEFAULT)


@pytest.mark.covers("T1", "T6")
def test_plan_with_every_gpu(layouts_file: Path, machine_name: str) -> None:
    spec = MachineSpec.load(layouts_file, machine_name)
    learners = len(spec.gpus) or 2
    wish = DEFAULT.model_copy(update={"num_learners": learners, "num_collectors": 2 * learners})
    compare(f"{machine_name}.all", spec, wish)


def small_machines() -> dict[str, MachineSpec]:
    laptop = machine({0: "0-7"}, smt=2, memory_available=14 * GIB, memory_total=16 * GIB)
    hidden = machine({0: "0-15", 1: "16-31"}, memory_total=128 * GIB, memory_available=120 * GIB, notes=(
        "CUDA_VISIBLE_DEVICES=3,0: cuda:0 is GPU 3 (0000:4e:00.0), cuda:1 is GPU 0 (0000:07:00.0)",
    ), sockets=2)  # fmt: skip
    gpus = (
        Gpu(0, "A100", "GPU-4", "0000:4e:00.0", 40 * GIB, (1,), 3),
        Gpu(1, "A100", "GPU-1", "0000:07:00.0", 40 * GIB, (0,), 0),
    )
    quota = machine(
        {0: "0-31"}, cpu_quota=3.5, memory_available=60 * GIB, memory_limit=4 * GIB, memory_limit_free=3 * GIB
    )
    specs = {
        "laptop_without_gpu": laptop,
        "two_cpus": machine({0: "0-1"}, memory_available=23 * GIB),
        "container_with_quota": quota,
        "two_gpus_reordered": replace(hidden, gpus=gpus),
    }
    return {name: replace(spec, name=name) for name, spec in specs.items()}


@pytest.mark.covers("T3", "T4", "T6")
@pytest.mark.parametrize("name", list(small_machines()))
def test_plan_of_small_machines(name: str) -> None:
    update = {"num_learners": 2} if name == "two_gpus_reordered" else {}
    compare(name, small_machines()[name], DEFAULT.model_copy(update=update))


def test_no_golden_file_is_left_over(layouts_file: Path) -> None:
    import json

    names = [layout["name"] for layout in json.loads(layouts_file.read_text())]
    expected = {*names, *(f"{name}.all" for name in names), *small_machines()}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == expected


@pytest.mark.covers("T6")
def test_every_line_fits_and_every_reason_is_there(layouts_file: Path, machine_name: str) -> None:
    spec = MachineSpec.load(layouts_file, machine_name)
    plan = resolve_trainer_topology(spec, DEFAULT)
    text = render_plan(spec, plan, DEFAULT)
    assert all(len(line) <= 140 and line == line.rstrip() for line in text.splitlines())
    flat = " ".join(text.split())
    for note in plan.notes:
        assert " ".join(note.split()) in flat


def test_json_has_exactly_the_documented_shape() -> None:
    wish = DEFAULT.model_copy(update={"num_learners": 2, "num_collectors": 4})
    spec = machine({0: "0-15", 1: "16-31"}, (1, None))
    data = to_json(resolve_trainer_topology(spec, wish))
    assert list(data) == ["learners", "collectors", "notes"]
    learners, collectors, notes = data.values()
    assert isinstance(learners, list)
    assert isinstance(collectors, list)
    assert isinstance(notes, list)
    assert list(learners[0]) == ["rank", "device", "numa_node", "cpus"]
    assert list(collectors[0]) == [
        "id", "owner", "num_envs", "numa_node", "cpus", "inference_device", "ring", "weights",
    ]  # fmt: skip
    assert learners[0]["numa_node"] == 1
    assert learners[1]["numa_node"] is None
    assert [c["owner"] for c in collectors] == [0, 0, 1, 1]
    assert all(isinstance(cpu, int) for cpu in collectors[0]["cpus"])
