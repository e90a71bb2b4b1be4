"""Learner devices, inference devices and T5: each transport option decides what it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.topology.test_resolve import machine, request
from topology import Gpu, RequestError, resolve_trainer_topology, torch_has_gpu_support

TWO = machine({0: "0-7", 1: "8-15"}, (0, 1))
NONE = machine({0: "0-7"})


def devices(spec, **options: object) -> list[str]:
    return [learner.device for learner in resolve_trainer_topology(spec, request(**options)).learners]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["cuda:0"]),
        ({"learner_devices": "auto", "num_learners": 2}, ["cuda:0", "cuda:1"]),
        ({"num_learners": 4}, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ({"learner_devices": "cuda:1,cuda:0"}, ["cuda:1", "cuda:0"]),
        ({"learner_devices": ["cuda:1", "cpu"]}, ["cuda:1", "cpu"]),
        ({"learner_devices": "cpu", "num_learners": 2}, ["cpu", "cpu"]),
        ({"learner_devices": "cuda:01"}, ["cuda:1"]),
        ({"learner_devices": "cuda", "num_learners": 2}, ["cuda:0", "cuda:1"]),
        ({"learner_devices": "cuda:0", "num_learners": 2}, ["cuda:0", "cuda:0"]),
        ({"cuda_available": False}, ["cpu"]),
    ],
)
def test_learner_devices(options: dict[str, object], expected: list[str]) -> None:
    assert devices(TWO, **options) == expected


def test_without_a_gpu_the_default_is_the_cpu() -> None:
    assert devices(NONE, num_learners=2) == ["cpu", "cpu"]


def test_sharing_a_gpu_is_said() -> None:
    plan = resolve_trainer_topology(TWO, request(learner_devices="cuda:0,cuda:0"))
    assert any("cuda:0 is shared by 2 ranks" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        (TWO, {"learner_devices": "cuda:2"}, "cuda:2 is not there; visible: cuda:0, cuda:1"),
        (NONE, {"learner_devices": "cuda:0"}, "no GPU is visible"),
        (NONE, {"learner_devices": "cuda"}, "no GPU is visible"),
        (TWO, {"learner_devices": "cuda:0", "cuda_available": False}, "CPU build"),
        (TWO, {"learner_devices": "cdua"}, "did you mean 'cuda"),
        (TWO, {"learner_devices": "cuda:²"}, "is not a device"),
        (TWO, {"learner_devices": ""}, "is not a device"),
        (
            TWO,
            {"learner_devices": "cpu,cpu", "num_learners": 3},
            "name 3 devices or one for all, or set num_learners=2",
        ),
        (TWO, {"collector_inference_device": "cuda:7"}, "collector_inference_device: cuda:7 is not there"),
        (NONE, {"collector_inference_device": "cuda"}, "no GPU to share"),
    ],
)
def test_refusals(spec, options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve_trainer_topology(spec, request(**options))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def channels(spec, **options: object) -> tuple[set[str], set[str]]:
    plan = resolve_trainer_topology(spec, request(**options))
    return {c.ring for c in plan.collectors}, {c.weights for c in plan.collectors}


BIG = 1 << 20


@pytest.mark.covers("T5")
@pytest.mark.parametrize(
    ("options", "rings", "weights"),
    [
        ({}, "host", "host"),
        ({"transition_ipc": "on"}, "cuda_ipc", "host"),
        ({"weight_ipc": "on"}, "host", "cuda_ipc"),
        ({"collector_inference_device": "cuda", "policy_bytes": BIG}, "cuda_ipc", "cuda_ipc"),
        ({"collector_inference_device": "cuda", "policy_bytes": BIG - 1}, "cuda_ipc", "host"),
        (
            {"collector_inference_device": "cuda", "policy_bytes": 9, "weight_ipc_min_bytes": 9},
            "cuda_ipc",
            "cuda_ipc",
        ),
        (
            {"collector_inference_device": "cuda", "policy_bytes": BIG, "transition_ipc": "off"},
            "host",
            "cuda_ipc",
        ),
        (
            {"collector_inference_device": "cuda", "policy_bytes": BIG, "weight_ipc": "off"},
            "cuda_ipc",
            "host",
        ),
        (
            {"collector_inference_device": "cuda", "weight_ipc": "on", "policy_bytes": 1},
            "cuda_ipc",
            "cuda_ipc",
        ),
        ({"learner_devices": "cpu", "policy_bytes": BIG}, "host", "host"),
    ],
)
def test_transports(options: dict[str, object], rings: str, weights: str) -> None:
    assert channels(TWO, num_learners=2, num_collectors=4, **options) == ({rings}, {weights})


@pytest.mark.covers("T5")
@pytest.mark.parametrize("option", ["transition_ipc", "weight_ipc"])
@pytest.mark.parametrize(
    ("spec", "more", "why"),
    [
        (NONE, {}, "learner 0 runs on the CPU"),
        (TWO, {"learner_devices": "cuda:0,cpu"}, "learner 1 runs on the CPU"),
        (replace(NONE, gpus=(Gpu(0, "A100", mig=True),)), {}, "a MIG slice"),
    ],
)
def test_on_where_it_cannot_work_is_refused(option: str, spec, more: dict[str, object], why: str) -> None:
    with pytest.raises(RequestError, match=f"{option}=on .*{why}.*use 'auto' or 'off'"):
        resolve_trainer_topology(spec, request(**{option: "on"}, **more))
    resolve_trainer_topology(spec, request(**{option: "auto"}, **more))


@pytest.mark.covers("T5")
def test_auto_is_decided_a_rank() -> None:
    plan = resolve_trainer_topology(
        TWO, request(num_collectors=4, learner_devices="cuda:0,cuda:1", collector_inference_device="cuda:1")
    )
    assert [c.ring for c in plan.collectors] == ["host", "host", "cuda_ipc", "cuda_ipc"]


def test_torch_build_is_found_without_importing_it() -> None:
    assert torch_has_gpu_support() in (True, False, None)
