"""From a configuration and a machine to a layout: sizes in bytes, the request, the plan as text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from motrix_rl.tasks.registry import env_spec, parse_task
from topology import (
    MAX_CPU_LEARNER_CORES,
    MachineSpec,
    TrainerRequest,
    TrainerTopology,
    World,
    render_plan,
    require_memory,
    resolve_trainer_topology,
    to_json,
)
from transport import SlotLayout
from workers.flops import update_flops

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig
    from motrix_rl.envs.spec import EnvSpec

FLOAT = 4
#: Copies of a rank's parameters: networks, target, gradients, two moments, and the work of one update.
LEARNER_COPIES = 8
#: Operations in the products of an update for each core of a learner on CPUs. Measured with one core and two: at 0.09
#: and 0.3e9 the second one costs 64 % and 31 % of the updates, at 1.7e9 it brings 3 to 20 %.
FLOPS_A_CORE = 1e9
#: Options that the resolver knows by the same names.
PLACEMENT_OPTIONS = (
    "num_learners",
    "num_collectors",
    "learner_devices",
    "cpus_per_collector",
    "collector_cpu_cores",
    "learner_cpu_cores",
    "collector_inference_device",
    "transition_ipc",
    "weight_ipc",
    "weight_ipc_min_bytes",
    "ring_capacity",
)


@dataclass(frozen=True)
class TrainingPlan:
    """What a run is made from.

    Attributes:
        machine: the machine the layout is for.
        request: what was asked for.
        topology: who runs where.
        env_spec: sizes and bounds of the task.
    """

    machine: MachineSpec
    request: TrainerRequest
    topology: TrainerTopology
    env_spec: EnvSpec

    @property
    def policy_size(self) -> int:
        """float32 values of one version of the policy in the mailbox."""
        return self.request.policy_bytes // FLOAT


def make_plan(
    config: RootConfig, machine: MachineSpec | None = None, world: World | None = None
) -> TrainingPlan:
    """Resolves the layout of one machine; starts nothing.

    Args:
        config: the run.
        machine: the machine; None = this one.
        world: where it stands among several; None = it is alone.

    Raises:
        UsageError: the task is unknown or cannot be trained.
        TopologyError: the request does not fit the machine.
    """
    machine = MachineSpec.detect() if machine is None else machine
    request = trainer_request(config, None, world)
    resolve_trainer_topology(machine, request)  # refuse what no layout can serve before loading a simulator
    task = parse_task(config.task)
    spec = env_spec(task.task, task.backend, config.env)
    request = trainer_request(config, spec, world)
    return TrainingPlan(machine, request, resolve_trainer_topology(machine, request), spec)


def require_room(plan: TrainingPlan) -> None:
    """Refuses a run that would not fit into memory, before anything is started."""
    require_memory(plan.machine, plan.topology, plan.request)


def trainer_request(config: RootConfig, spec: EnvSpec | None, world: World | None = None) -> TrainerRequest:
    """The resolver's request; bytes are 0, and cores the most, while the task's sizes are unknown."""
    options = config.algo.trainer.async_options
    placement = {name: getattr(options, name) for name in PLACEMENT_OPTIONS}
    known: dict[str, int] = {}
    if spec is not None:
        known = byte_sizes(config, spec) | {"max_cpu_learner_cores": cpu_learner_cores(config, spec, world)}
    return TrainerRequest.model_validate(
        {
            **placement,
            **({} if world is None else {"world": world}),
            "num_envs": config.num_envs,
            "batch_size": config.algo.agent.batch_size,
            "evaluator": config.eval.interval > 0,
            **known,
        }
    )


def cpu_learner_cores(config: RootConfig, spec: EnvSpec, world: World | None) -> int:
    """Cores of which one learner on CPUs makes use, from the size of its updates."""
    ranks = (config.algo.trainer.async_options.num_learners or 1) * (1 if world is None else world.nnodes)
    flops = update_flops(config.algo.agent, spec, config.algo.agent.batch_size // ranks)
    return max(1, min(MAX_CPU_LEARNER_CORES, int(flops / FLOPS_A_CORE)))


def byte_sizes(config: RootConfig, spec: EnvSpec) -> dict[str, int]:
    """Bytes of slots, replay, policy and learner."""
    agent = config.algo.agent
    layout = SlotLayout.for_shard(config.num_envs, spec.obs_dim, spec.action_dim, spec.critic_obs_dim)
    # As the replay counts them, which cannot be asked here: it would load torch. A test compares the two.
    rows = max(math.ceil(agent.buffer_size / config.num_envs), agent.n_step + 2)
    finals = (rows // 50 + 1) * config.num_envs
    observed = FLOAT * (spec.obs_dim + (spec.critic_obs_dim or 0))
    replay = rows * config.num_envs * (observed + FLOAT * (spec.action_dim + 1) + 9) + finals * (observed + 8)
    actor = _mlp_parameters(spec.obs_dim, agent.actor_hidden_dim, 2 * spec.action_dim)
    critic_input = (spec.critic_obs_dim or spec.obs_dim) + spec.action_dim
    critics = agent.num_q_networks * _mlp_parameters(critic_input, agent.critic_hidden_dim, agent.num_atoms)
    return {
        "slot_bytes_per_env": -(-layout.nbytes // config.num_envs),
        "replay_bytes": replay,
        "policy_bytes": FLOAT * (actor + 2 * spec.obs_dim),
        "learner_bytes": FLOAT * LEARNER_COPIES * (actor + 2 * critics),
    }


def _mlp_parameters(inputs: int, hidden: int, outputs: int) -> int:
    widths = [inputs, hidden, hidden // 2, hidden // 4]
    layers = sum((a + 3) * b for a, b in pairwise(widths))  # weights, bias, LayerNorm
    return layers + (widths[-1] + 1) * outputs


def plan_text(config: RootConfig, machine: MachineSpec | None = None, *, as_json: bool = False) -> str:
    """The layout as ``motrix-rl plan`` prints it; starts nothing."""
    plan = make_plan(config, machine)
    if as_json:
        return json.dumps(to_json(plan.topology), indent=2)
    return render_plan(plan.machine, plan.topology, plan.request)
