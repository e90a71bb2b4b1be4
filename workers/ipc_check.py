"""Before anything is made: does CUDA IPC work where the layout wants it (R7)?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from motrix_rl.errors import UsageError
from topology import resolve_trainer_topology
from transport.probe import why_no_ipc
from workers.planning import TrainingPlan

OPTIONS = ("transition_ipc", "weight_ipc")


def with_working_ipc(plan: TrainingPlan, probe: Callable[[str], str | None] = why_no_ipc) -> TrainingPlan:
    """The plan, or one without CUDA IPC where a try shows that it does not work; `auto` says so in the notes.

    Args:
        plan: the layout as the machine's description suggests it.
        probe: says why a device's memory cannot be shared, or None.

    Raises:
        UsageError: an option is `on` and cannot be served.
    """
    topology = plan.topology
    wanting = {c.owner for c in topology.collectors if "cuda_ipc" in (c.ring, c.weights)}
    devices = sorted({info.device for info in topology.learners if info.rank in wanting})
    why = next((reason for device in devices if (reason := probe(device)) is not None), None)
    if why is None:
        return plan
    insisted = [name for name in OPTIONS if getattr(plan.request, name) == "on"]
    if insisted:
        raise UsageError(f"{insisted[0]}=on, but {why}; use 'auto' or 'off'")
    request = plan.request.model_copy(update=dict.fromkeys(OPTIONS, "off"))
    fallback = resolve_trainer_topology(plan.machine, request)
    note = f"rings and weights: host memory, since {why}"
    return replace(plan, request=request, topology=replace(fallback, notes=(*fallback.notes, note)))
