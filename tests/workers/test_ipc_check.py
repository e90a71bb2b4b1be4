"""A layout that wants CUDA IPC is tried out first; described GPUs and a scripted try stand in for real ones."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from motrix_rl.config import load_config
from motrix_rl.errors import UsageError
from topology import MachineSpec
from topology.machine import Gpu
from transport.probe import why_no_ipc
from workers import planning
from workers.ipc_check import with_working_ipc


def plan_with_gpu(**options: str) -> planning.TrainingPlan:
    machine = MachineSpec.detect()
    home = machine.usable_nodes[0].id
    machine = replace(machine, gpus=(gpu_on(home),))
    words = [f"algo.trainer.async_options.{name}={value}" for name, value in options.items()]
    config = load_config(["task=cartpole-swingup/mujoco.fastsac", "num_envs=8", *words])
    return planning.make_plan(config, machine)


def gpu_on(node: int) -> Gpu:
    known: dict[str, Any] = {"index": 0, "name": "a GPU", "uuid": "GPU-0", "pci": "0000:01:00.0"}
    known |= {"numa_node": node, "node": node, "memory_bytes": 80 << 30, "memory": 80 << 30, "mig": False}
    return Gpu(**{item.name: known[item.name] for item in fields(Gpu) if item.name in known})


@pytest.mark.covers("R7", "T5")
def test_auto_falls_back_to_the_host_and_says_why() -> None:
    plan = plan_with_gpu(collector_inference_device="cuda:0", weight_ipc_min_bytes="0")
    assert {c.ring for c in plan.topology.collectors} == {"cuda_ipc"}
    assert with_working_ipc(plan, lambda device: None) is plan
    found = with_working_ipc(plan, lambda device: f"{device} is shut in")
    assert {c.ring for c in found.topology.collectors} == {"host"}
    assert {c.weights for c in found.topology.collectors} == {"host"}
    assert found.topology.notes[-1] == "rings and weights: host memory, since cuda:0 is shut in"


@pytest.mark.covers("R7", "T5")
@pytest.mark.parametrize("option", ["transition_ipc", "weight_ipc"])
def test_on_is_an_error(option: str) -> None:
    plan = plan_with_gpu(**{option: "on"})
    with pytest.raises(UsageError, match=f"{option}=on, but cuda:0 is shut in; use 'auto' or 'off'"):
        with_working_ipc(plan, lambda device: f"{device} is shut in")


@pytest.mark.covers("R7")
def test_an_allocator_that_cannot_share_is_named_without_a_try() -> None:
    why = why_no_ipc("cuda:0", {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"})
    assert why is not None
    assert "PYTORCH_CUDA_ALLOC_CONF sets expandable_segments" in why


@pytest.mark.covers("R7")
def test_a_machine_without_cuda_says_so_in_one_line() -> None:
    why = why_no_ipc("cuda:77")
    assert why is not None
    assert why.startswith("memory of cuda:77 cannot be shared over CUDA IPC here: ")
    assert "\n" not in why


@pytest.mark.covers("R7")
def test_a_layout_on_the_host_is_not_tried() -> None:
    def never(device: str) -> str | None:
        raise AssertionError(device)

    config = load_config(
        ["task=cartpole-swingup/mujoco.fastsac", "algo.trainer.async_options.learner_devices=cpu"]
    )
    plan = planning.make_plan(config)
    assert with_working_ipc(plan, never) is plan
