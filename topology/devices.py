"""Which device each learner rank gets, and where collectors run the policy."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from topology.errors import RequestError
from topology.machine import Gpu, MachineSpec
from topology.request import TrainerRequest


@dataclass(frozen=True)
class LearnerDevices:
    """One device a rank of this machine; `fixed`: the user's list decided how many ranks there are."""

    devices: tuple[str, ...]
    fixed: bool
    notes: tuple[str, ...]


def gpu_of(machine: MachineSpec, device: str) -> Gpu | None:
    """The GPU behind ``cuda:N``, or None for ``cpu``."""
    return next((gpu for gpu in machine.gpus if gpu.device == device), None)


def resolve_learner_devices(machine: MachineSpec, request: TrainerRequest) -> LearnerDevices:
    """Expands `learner_devices` to one device a rank.

    Raises:
        RequestError: a device that is not there, or a list whose length is not the number of learners.
    """
    listed = _split(request.learner_devices)
    if listed in ((), ("auto",)):
        return _automatic(machine, request)
    if listed == ("cuda",):
        if not _gpus(machine, request):
            raise RequestError(f"learner_devices=cuda: {_absent(machine, request)}; use 'cpu' or 'auto'")
        return _automatic(machine, request)
    listed = tuple(_checked(device, "learner_devices", machine, request) for device in listed)
    count = request.num_learners
    if count is None:
        count = len(listed)
    elif len(listed) not in (1, count):
        raise RequestError(
            f"learner_devices names {len(listed)} devices for num_learners={count}; "
            f"name {count} devices or one for all, or set num_learners={len(listed)}",
            {"num_learners": [len(listed)]},
        )
    devices = listed * count if len(listed) == 1 else listed
    notes = [f"learners: {_per_rank(devices)} as asked for (learner_devices)"]
    return LearnerDevices(devices, len(listed) > 1, (*notes, *_shared_gpu_notes(devices)))


def _automatic(machine: MachineSpec, request: TrainerRequest) -> LearnerDevices:
    count = request.num_learners or 1
    why = f"num_learners={count}" if request.num_learners else "one, the default of num_learners"
    gpus = _gpus(machine, request)
    if not gpus:
        notes = (f"learners: {why}; on the CPU, because {_absent(machine, request)}",)
        return LearnerDevices(("cpu",) * count, False, notes)
    devices = tuple(gpus[rank % len(gpus)].device for rank in range(count))
    notes = [f"learners: {why}; GPUs are taken in the order in which CUDA shows them: {_per_rank(devices)}"]
    left = len(gpus) - len(set(devices))
    if left:
        notes.append(f"{left} GPU(s) stay unused; num_learners={len(gpus)} would use all {len(gpus)}")
    return LearnerDevices(devices, False, (*notes, *_shared_gpu_notes(devices)))


def _per_rank(devices: tuple[str, ...]) -> str:
    return ", ".join(f"rank {rank} on {device}" for rank, device in enumerate(devices))


def _shared_gpu_notes(devices: tuple[str, ...]) -> list[str]:
    return [
        f"{device} is shared by {devices.count(device)} ranks; NCCL refuses that, so gradients go over Gloo"
        for device in dict.fromkeys(devices)
        if device != "cpu" and devices.count(device) > 1
    ]


def _split(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    items = value.split(",") if isinstance(value, str) else value
    return tuple(item.strip() for item in items)


def _gpus(machine: MachineSpec, request: TrainerRequest) -> tuple[Gpu, ...]:
    return machine.gpus if request.cuda_available else ()


def _absent(machine: MachineSpec, request: TrainerRequest) -> str:
    if machine.gpus and not request.cuda_available:
        return "the installed torch cannot use a GPU (CPU build)"
    return "no GPU is visible"


def _checked(device: str, option: str, machine: MachineSpec, request: TrainerRequest) -> str:
    """Refuses what is not ``cpu`` or the ``cuda:N`` of a visible GPU, and returns it as we write it."""
    if device == "cpu":
        return device
    kind, _, number = device.partition(":")
    gpus = _gpus(machine, request)
    if kind == "cuda" and number.isascii() and number.isdigit():
        if any(gpu.index == int(number) for gpu in gpus):
            return f"cuda:{int(number)}"
        there = f"visible: {', '.join(gpu.device for gpu in gpus)}" if gpus else _absent(machine, request)
        raise RequestError(f"{option}: {device} is not there; {there}; 'cpu' always works")
    valid = ["auto", "cpu", "cuda", *(gpu.device for gpu in gpus)]
    near = difflib.get_close_matches(device.lower(), valid, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(valid)}"
    raise RequestError(f"{option}: {device!r} is not a device; {hint}")


def resolve_inference_devices(
    machine: MachineSpec, request: TrainerRequest, devices: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the collectors of each rank run the policy.

    Returns:
        One device a rank, and notes.

    Raises:
        RequestError: a device that is not there, or ``cuda`` for a rank that has no GPU.
    """
    wish = request.collector_inference_device
    if wish in (None, "auto"):
        note = "collectors infer on the CPU: the policy is small, and a GPU context in each would cost more"
        return ("cpu",) * len(devices), (note,)
    if wish == "cuda":
        for rank, device in enumerate(devices):
            if device == "cpu":
                why = f"learner {rank} runs on the CPU and has no GPU to share"
                raise RequestError(f"collector_inference_device=cuda: {why}; use 'cpu'")
        return devices, ("collectors infer on their owner's GPU, as asked for (collector_inference_device)",)
    device = _checked(str(wish), "collector_inference_device", machine, request)
    note = f"collectors infer on {device}, as asked for (collector_inference_device)"
    return (device,) * len(devices), (note,)
