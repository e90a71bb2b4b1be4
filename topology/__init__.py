"""What machine is this, and who goes where: pure functions over frozen data. Imports no torch."""

from topology.binding import bound_spawn
from topology.errors import MachineError, RequestError, TopologyError
from topology.machine import Gpu, MachineSpec, NumaNode
from topology.memory import Finding, check_memory, require_memory
from topology.plan import CollectorInfo, EvaluatorInfo, LearnerInfo, TrainerTopology
from topology.render import render_plan, to_json
from topology.request import MAX_CPU_LEARNER_CORES, TrainerRequest, World
from topology.resolve import resolve_trainer_topology
from topology.torch_build import torch_has_gpu_support

__all__ = [
    "MAX_CPU_LEARNER_CORES",
    "CollectorInfo",
    "EvaluatorInfo",
    "Finding",
    "Gpu",
    "LearnerInfo",
    "MachineError",
    "MachineSpec",
    "NumaNode",
    "RequestError",
    "TopologyError",
    "TrainerRequest",
    "TrainerTopology",
    "World",
    "bound_spawn",
    "check_memory",
    "render_plan",
    "require_memory",
    "resolve_trainer_topology",
    "to_json",
    "torch_has_gpu_support",
]
