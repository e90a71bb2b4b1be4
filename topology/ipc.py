"""T5: where rings and weights live, host memory or device memory shared over CUDA IPC.

Each option decides what it names and nothing else: `transition_ipc` the rings, `weight_ipc` the mailbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from topology.cpulist import format_kernel
from topology.devices import gpu_of
from topology.errors import RequestError
from topology.machine import MachineSpec
from topology.plan import Channel
from topology.request import TrainerRequest, Transport

Choice = tuple[tuple[Channel, ...], tuple[str, ...]]
"""One channel a rank, and notes."""

_SHARED = "device memory over CUDA IPC"


def choose_rings(
    machine: MachineSpec, request: TrainerRequest, devices: tuple[str, ...], inference: tuple[str, ...]
) -> Choice:
    """The storage of every rank's rings, one answer a rank, since a rank's rings are all of one kind.

    ``auto`` wants the collectors on the owner's GPU: a GPU context in each only for the rings costs more
    device memory than the copy that it saves is worth.

    Raises:
        RequestError: ``transition_ipc=on`` where it cannot work.
    """

    def against(rank: int) -> str | None:
        return _apart(devices[rank], inference[rank])

    return _choose("rings", "transition_ipc", request.transition_ipc, machine, devices, against)


def choose_weights(
    machine: MachineSpec, request: TrainerRequest, devices: tuple[str, ...], inference: tuple[str, ...]
) -> Choice:
    """Where each rank's collectors read the policy, one answer a rank.

    Raises:
        RequestError: ``weight_ipc=on`` where it cannot work.
    """

    def against(rank: int) -> str | None:
        apart = _apart(devices[rank], inference[rank])
        if apart is None and request.policy_bytes < request.weight_ipc_min_bytes:
            few = f"weight_ipc_min_bytes={request.weight_ipc_min_bytes}"
            return f"publishes {request.policy_bytes} bytes, fewer than {few}"
        return apart

    return _choose("weights", "weight_ipc", request.weight_ipc, machine, devices, against)


def _choose(
    what: str,
    option: Literal["transition_ipc", "weight_ipc"],
    mode: Transport,
    machine: MachineSpec,
    devices: tuple[str, ...],
    against: Callable[[int], str | None],
) -> Choice:
    host: Channel = "host"
    device_memory: Channel = "cuda_ipc"
    if mode == "off":
        return tuple(host for _ in devices), (f"{what}: host memory ({option}=off)",)
    obstacles = [_impossible(machine, device) for device in devices]
    if mode == "on":
        for rank, why in enumerate(obstacles):
            if why:
                raise RequestError(
                    f"{option}=on needs every learner on a GPU, but learner {rank} {why}; use 'auto' or 'off'"
                )
        return tuple(device_memory for _ in devices), (f"{what}: {_SHARED} ({option}=on)",)
    reasons = [obstacle or against(rank) for rank, obstacle in enumerate(obstacles)]
    notes: list[str] = []
    for why in dict.fromkeys(reasons):
        ranks = format_kernel(rank for rank, reason in enumerate(reasons) if reason == why)
        detail = f"the learner {why}" if why else "collectors infer on their learner's GPU"
        notes.append(f"{what} of rank {ranks}: {'host memory' if why else _SHARED} ({option}=auto: {detail})")
    return tuple(host if why else device_memory for why in reasons), tuple(notes)


def _impossible(machine: MachineSpec, device: str) -> str | None:
    """Why a learner on `device` cannot share device memory; None where it can."""
    gpu = gpu_of(machine, device)
    if gpu is None:
        return "runs on the CPU"
    if gpu.mig:
        return f"runs on {device}, a MIG slice, which CUDA IPC does not support"
    return None


def _apart(device: str, inference: str) -> str | None:
    if inference == device:
        return None
    return f"runs on a GPU, but its collectors infer on {inference} and need no context on that GPU"
