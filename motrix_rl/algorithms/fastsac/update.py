"""One update of critics, temperature, target and actor, on a batch that is given."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from motrix_rl.algorithms.fastsac import kept_loops, losses
from motrix_rl.algorithms.fastsac.graphs import CudaRecorder, Pieces, Recorder, Replayed
from motrix_rl.algorithms.fastsac.objectives import AutogradObjectives

if TYPE_CHECKING:
    from motrix_rl.algorithms.fastsac.config import FastSACConfig
    from motrix_rl.algorithms.fastsac.flat import FlatGroup, Reducer
    from motrix_rl.algorithms.fastsac.host_objectives import HostObjectives
    from motrix_rl.algorithms.fastsac.objectives import Networks
    from motrix_rl.algorithms.fastsac.statistics import AgentStatistics
    from motrix_rl.replay.batch import Batch

#: Nothing, loading what takes a moment, or compiling for seconds to minutes.
Preparation = Literal["nothing", "loads", "compiles"]
# One update in so many is looked at for `metrics`: the scalars of all would cost a tenth of an update.
REPORT_EVERY = 8
CRITIC_METRICS = ("critic_loss", "alpha_loss", "entropy", "q_mean", "v_edge_mass", "critic_grad_norm")
ACTOR_METRICS = ("actor_loss", "actor_grad_norm")


class Given(NamedTuple):
    """What one update is done on.

    Attributes:
        batch: Transitions.
        critic_noise: `[B, A]` standard normal, for the next actions.
        actor_noise: `[B, A]` standard normal, for the actor's own.
    """

    batch: Batch
    critic_noise: Tensor
    actor_noise: Tensor

    def clone(self) -> Given:
        """The same in other memory."""
        return Given(self.batch.clone(), self.critic_noise.clone(), self.actor_noise.clone())

    def copy_(self, other: Given) -> None:
        """Takes the values of `other`; of its own batch it has them."""
        if other.batch is not self.batch:
            self.batch.copy_(other.batch)
        self.critic_noise.copy_(other.critic_noise)
        self.actor_noise.copy_(other.actor_noise)


class Groups(NamedTuple):
    """Flat buffers of what is trained.

    Attributes:
        actor: Its parameters.
        critic: The critics', and the log temperature as the last element.
        target: `[P]` parameters of the target critics.
    """

    actor: FlatGroup
    critic: FlatGroup
    target: Tensor


class Update:
    """Gradients, their mean over the ranks, and steps.

    Args:
        config: Settings of the agent.
        networks: What is trained.
        groups: Where their parameters and gradients lie.
        statistics: Normalise what is given.
        target_entropy: Of the temperature.
        reducer: Collectives of the ranks; None: there is one.
    """

    def __init__(
        self,
        config: FastSACConfig,
        networks: Networks,
        groups: Groups,
        statistics: AgentStatistics,
        target_entropy: float,
        reducer: Reducer | None,
    ) -> None:
        self.config, self.networks, self.groups, self.statistics = config, networks, groups, statistics
        self.target_entropy, self.reducer = target_entropy, reducer
        device = groups.target.device
        self._by_hand = device.type == "cpu" and not (config.amp or config.compile)
        self._critic_flat = groups.critic.param[:-1]
        self._critic_sums = torch.zeros(len(CRITIC_METRICS) + 1, dtype=torch.float64, device=device)
        self._actor_sums = torch.zeros(len(ACTOR_METRICS) + 1, dtype=torch.float64, device=device)
        self._pieces = Pieces(
            self._critic_gradients, self._critic_step, self._actor_gradients, self._actor_step
        )
        self._replays = False
        self._given: Given | None = None
        self._number = 0
        if config.cuda_graphs and device.type == "cuda":
            self.replay(CudaRecorder(device))

    def replay(self, recorder: Recorder) -> None:
        """Has the pieces of an update recorded and replayed from now on; before the first update."""
        self._replays = True
        self._pieces = Pieces(*(Replayed(piece, recorder) for piece in self._pieces))

    @functools.cached_property
    def objectives(self) -> HostObjectives | AutogradObjectives:
        """Write the gradients; on a CPU by hand, unless what these lack is asked for. Made at the first use."""
        if not self._by_hand:
            return AutogradObjectives(self.config, self.networks, self.groups.actor, self.groups.critic)
        # Here, because it loads Numba, which nobody else needs, and which takes its time.
        from motrix_rl.algorithms.fastsac.host_objectives import HostObjectives

        return HostObjectives(self.config, self.networks)

    @property
    def preparation(self) -> Preparation:
        """What the first update has to do that others have not."""
        if self._by_hand:
            return "loads" if kept_loops.are_all_kept() else "compiles"
        objectives = self.objectives
        compiled = isinstance(objectives, AutogradObjectives) and objectives.compiled
        return "compiles" if compiled else "nothing"

    def prepare(self, given: Given) -> None:
        """Does that: no parameter, statistic or random number changes; gradients are overwritten."""
        inputs = self.statistics.inputs(given.batch)
        self.objectives.critic_gradients(inputs, given.critic_noise)
        self.objectives.actor_gradients(inputs, given.actor_noise)
        if self._by_hand:
            kept_loops.note_that_all_are_kept()

    @property
    def batch(self) -> Batch | None:
        """Where to sample for a replay, so that nothing is copied; None if there is no such place."""
        return self._given.batch if self._replays and self._given is not None else None

    def __call__(self, given: Given, number: int) -> None:
        """Does the update with this number, counted from 0, by the critics; every so many of them has the actor's."""
        self._stage(given)
        self._number, pieces = number, self._pieces
        pieces.critic_gradients()
        self.groups.critic.reduce(self.reducer)
        pieces.critic_step()
        if (number + 1) % self.config.policy_frequency == 0:
            pieces.actor_gradients()
            self.groups.actor.reduce(self.reducer)
            pieces.actor_step()

    def metrics(self) -> dict[str, float]:
        """Means over the reported updates since the last call. Waits for the device."""
        out: dict[str, float] = {}
        for names, sums in ((CRITIC_METRICS, self._critic_sums), (ACTOR_METRICS, self._actor_sums)):
            *totals, count = sums.tolist()
            if count:
                out |= {name: total / count for name, total in zip(names, totals, strict=True)}
            sums.zero_()
        return out

    # ------------------------------------------------------------------ pieces

    def _stage(self, given: Given) -> None:
        """Puts what is given where the pieces look for it: always the same memory, for a replay."""
        if not self._replays:
            self._given = given
        elif self._given is None:
            self._given = given.clone()
        else:
            self._given.copy_(given)

    def _critic_gradients(self) -> None:
        """Of critics and temperature, in one buffer."""
        assert self._given is not None
        self._inputs = self.statistics.inputs(self._given.batch)
        self._critic_result = self.objectives.critic_gradients(
            self._inputs, self._given.critic_noise, report=self._reports()
        )
        with torch.no_grad():
            # d(-exp(x) c)/dx is the loss itself, so no graph is needed for it.
            self._alpha_loss = losses.temperature_loss(
                self.networks.log_alpha, self._critic_result.log_prob, self.target_entropy
            )
            self.groups.critic.grad[-1:] = self._alpha_loss

    @torch.no_grad()
    def _critic_step(self) -> None:
        """Of critics and temperature; then the target moves."""
        norm, found_inf = self.groups.critic.step()
        self.groups.target.lerp_(self._critic_flat, self.config.tau)
        if self._reports():
            result = self._critic_result
            values = (result.loss, self._alpha_loss, -result.log_prob, result.value, result.edge_mass, norm)
            _record(self._critic_sums, values, found_inf)

    def _actor_gradients(self) -> None:
        assert self._given is not None
        self._actor_loss = self.objectives.actor_gradients(
            self._inputs, self._given.actor_noise, report=self._reports(self.config.policy_frequency)
        )

    def _actor_step(self) -> None:
        norm, found_inf = self.groups.actor.step()
        if self._reports(self.config.policy_frequency):
            _record(self._actor_sums, (self._actor_loss, norm), found_inf)

    def _reports(self, every: int = 1) -> bool:
        """Whether this one of every so many updates is looked at; what is replayed does the same every time."""
        return self._replays or self._number // every % REPORT_EVERY == 0


def _record(sums: Tensor, values: tuple[Tensor | None, ...], found_inf: Tensor) -> None:
    """Adds one update's scalars and a count of 1 to `sums`, unless the update was skipped."""
    row = torch.cat([value.reshape(1).double() for value in values if value is not None])
    row = torch.cat([row, torch.ones_like(row[:1])])
    sums.add_(torch.where(found_inf > 0, torch.zeros_like(row), row))
