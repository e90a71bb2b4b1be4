"""T5: where rings and weights live, host memory or device memory shared over CUDA IPC.

Each option decides what it names and nothing else: `transition_ipc` the rings, `weight_ipc` the mailbox.
"""

from __future__ import annotations

from topology.devices import gpu_of
from topology.errors import RequestError
from topology.machine import MachineSpec
from topology.plan import Channel
from topology.request import TrainerRequest


def _impossible(machine: MachineSpec, device: str) -> str | None:
    """Why a learner on `device` cannot share device memory; None where it can."""
    gpu = gpu_of(machine, device)
    if gpu is None:
        return "runs on the CPU"
    if gpu.mig:
        return f"runs on {device}, a MIG slice, which CUDA IPC does not support"
    return None


def _insist(option: str, machine: MachineSpec, devices: tuple[str, ...]) -> None:
    for rank, device in enumerate(devices):
        why = _impossible(machine, device)
        if why:
            raise RequestError(
                f"{option}=on needs every learner on a GPU, but learner {rank} {why}; use 'auto' or 'off'"
            )


def choose_rings(
    machine: MachineSpec, request: TrainerRequest, devices: tuple[str, ...], inference: tuple[str, ...]
) -> tuple[tuple[Channel, ...], tuple[str, ...]]:
    """The storage of every rank's rings, one answer a rank, since a rank's rings are all of one kind.

    Raises:
        RequestError: ``transition_ipc=on`` where it cannot work.
    """
    mode = request.transition_ipc
    if mode == "off":
        return ("host",) * len(devices), ("rings: host memory (transition_ipc=off)",)
    if mode == "on":
        _insist("transition_ipc", machine, devices)
        return ("cuda_ipc",) * len(devices), ("rings: device memory over CUDA IPC (transition_ipc=on)",)
    channels: list[Channel] = []
    notes: list[str] = []
    for rank, (device, where) in enumerate(zip(devices, inference, strict=True)):
        why = _impossible(machine, device)
        if why is None and where != device:
            why = f"runs on {device}, but its collectors infer on {where} and need no GPU context otherwise"
        channels.append("host" if why else "cuda_ipc")
        detail = (
            f"learner {rank} {why}"
            if why
            else f"the collectors of learner {rank} have a context on {device} anyway"
        )
        notes.append(f"rings of rank {rank}: {_words(channels[-1])} (transition_ipc=auto: {detail})")
    return tuple(channels), tuple(notes)


def choose_weights(
    machine: MachineSpec, request: TrainerRequest, devices: tuple[str, ...], inference: tuple[str, ...]
) -> tuple[tuple[Channel, ...], tuple[str, ...]]:
    """Where each rank's collectors read the policy, one answer a rank.

    Raises:
        RequestError: ``weight_ipc=on`` where it cannot work.
    """
    mode = request.weight_ipc
    if mode == "off":
        return ("host",) * len(devices), ("weights: host memory (weight_ipc=off)",)
    if mode == "on":
        _insist("weight_ipc", machine, devices)
        return ("cuda_ipc",) * len(devices), ("weights: device memory over CUDA IPC (weight_ipc=on)",)
    channels: list[Channel] = []
    notes: list[str] = []
    for rank, (device, where) in enumerate(zip(devices, inference, strict=True)):
        why = _impossible(machine, device)
        if why is None and where != device:
            why = f"runs on {device}, but its collectors infer on {where}"
        if why is None and request.policy_bytes < request.weight_ipc_min_bytes:
            why = f"publishes {request.policy_bytes} bytes, fewer than weight_ipc_min_bytes={request.weight_ipc_min_bytes}"
        channels.append("host" if why else "cuda_ipc")
        detail = f"learner {rank} {why}" if why else f"learner {rank} and its collectors share {device}"
        notes.append(f"weights of rank {rank}: {_words(channels[-1])} (weight_ipc=auto: {detail})")
    return tuple(channels), tuple(notes)


def _words(channel: Channel) -> str:
    return "host memory" if channel == "host" else "device memory over CUDA IPC"
