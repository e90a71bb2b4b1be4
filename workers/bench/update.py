"""How near an update comes to what the same core does in bare matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.bench.figures import Figure, figure, machine_line
from workers.bench.stages import Stands, Tell, layout_words
from workers.flops import update_flops
from workers.planning import make_plan, require_room

if TYPE_CHECKING:
    from motrix_rl.config.schema import RootConfig

#: Sizes of a product that keeps a core, or a GPU, as busy as it can be kept.
LARGE = {"cpu": (512, 512, 512), "cuda": (4096, 4096, 4096)}


@dataclass(frozen=True)
class UpdateReport:
    """What was measured, rank 0 alone.

    Attributes:
        machine: the machine, in one line.
        flops: operations in the matrix products of an update (`update_flops`).
        updates: updates a second.
        large: operations a second of a large product.
        layer: those of the critics' first hidden product, [B, H] and [H, H/2], which most of an update is.
        share: of the large product's rate that updates reach, round by round.
    """

    machine: str
    task: str
    layout: str
    batch_size: int
    flops: float
    updates: Figure
    large: Figure
    layer: Figure
    share: Figure

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "machine": self.machine,
            "task": self.task,
            "layout": self.layout,
            "batch_size": self.batch_size,
            "flops_per_update": self.flops,
            "updates_per_s": self.updates.data(),
            "update_gflop_s": self.updates.times(self.flops / 1e9).data(),
            "gemm_gflop_s": self.large.times(1e-9).data(),
            "layer_gemm_gflop_s": self.layer.times(1e-9).data(),
            "share_of_gemm": self.share.data(),
        }


def measure_update(config: RootConfig, seconds: float, rounds: int, tell: Tell) -> UpdateReport:
    """Measures updates and products by turns, in one process on rank 0's CPUs and device.

    Args:
        config: what is trained.
        seconds: of each measurement.
        rounds: measurements of each.
        tell: told what goes on.

    Raises:
        UsageError, TopologyError: the request is wrong, or does not fit the machine.
        MotrixError: the process failed.
    """
    plan = make_plan(config)
    require_room(plan)
    machine = machine_line(plan.machine)
    learner = plan.topology.learners[0]
    hidden = config.algo.agent.critic_hidden_dim
    large = LARGE[learner.device.partition(":")[0]]
    layer = (learner.batch_size, hidden, hidden // 2)
    flops = update_flops(config.algo.agent, plan.env_spec, learner.batch_size)
    updates: list[float] = []
    products: dict[tuple[int, int, int], list[float]] = {large: [], layer: []}
    with Stands(config, plan, collecting=False) as stands:
        tell("starting")
        stands.wait_ready(config.algo.trainer.async_options.boot_timeout_s)
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            updates.append(stands.learner_call("updates", seconds=seconds))
            for shape, rates in products.items():
                rates.append(stands.learner_call("products", seconds=seconds, shape=shape))
    return UpdateReport(
        machine=machine,
        task=config.task,
        layout=layout_words(plan),
        batch_size=learner.batch_size,
        flops=flops,
        updates=figure(updates),
        large=figure(products[large]),
        layer=figure(products[layer]),
        share=figure([rate * flops / gemm for rate, gemm in zip(updates, products[large], strict=True)]),
    )
