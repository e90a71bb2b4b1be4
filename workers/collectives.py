"""What ranks say to one another: decisions, gradients, statistics, figures; in one place, to be counted.

Every rank makes the same calls in the same order. :class:`SoloRank` is the other implementation: one rank, no
process group, nothing to wait for.
"""

from __future__ import annotations

import logging
import os
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from transport import Phase, WorkerBoard
from workers.decision import Decision, Operation
from workers.machines import interface_towards
from workers.wiring import GroupAddress

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The supervisor ends peers, not this limit; it is longer than any legitimate pause.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


class PeerLostError(RuntimeError):
    """A collective failed: another rank is gone. This rank is a victim, not the culprit."""

    victim = True


class ReplicasDifferError(RuntimeError):
    """Ranks hold different parameters; nothing that would be learnt from here on could be trusted."""


class Ranks(Protocol):
    """The ranks of a run as one of them sees them."""

    rank: int
    world_size: int

    def share(self, decision: Decision | None) -> Decision:
        """Rank 0 passes its decision, the others None; all return rank 0's."""
        ...

    def gather(self, kind: str, values: Sequence[float]) -> Tensor:
        """``[W, k]`` float64: every rank's values, in rank order."""
        ...

    def tell(self, kind: str, value: T | None) -> T:
        """Rank 0 passes a picklable value, the others None; all return rank 0's."""
        ...

    def close(self) -> None:
        """Leaves the group."""
        ...


class SoloRank:
    """The only rank: no group, no collective."""

    rank = 0
    world_size = 1

    def share(self, decision: Decision | None) -> Decision:
        assert decision is not None
        return decision

    def gather(self, kind: str, values: Sequence[float]) -> Tensor:
        return torch.tensor([list(values)], dtype=torch.float64)

    def tell(self, kind: str, value: T | None) -> T:
        assert value is not None
        return value

    def close(self) -> None:
        """Nothing to leave."""


class RankGroup:
    """A rank of several: Gloo on the CPU for decisions and figures, NCCL or Gloo for gradients.

    It also is the agent's reducer.

    Args:
        address: where the ranks meet.
        rank: this rank over all machines.
        world_size: ranks over all machines.
        device: device of this rank's networks.
        board: the sequence number of the collective being entered is written there, for the supervisor.
        exclusive: every rank has a GPU of its own, so that NCCL can serve the gradients.
    """

    def __init__(
        self,
        address: GroupAddress,
        *,
        rank: int,
        world_size: int,
        device: torch.device,
        board: WorkerBoard,
        exclusive: bool,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.calls: Tally[str] = Tally()
        self._board = board
        self._sequence = 0
        interface = interface_towards(address.host)
        if interface is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        before = board.phase
        board.set_phase(Phase.COLLECTIVE)
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented, but not listed
            address.host,
            address.port,
            world_size,
            is_master=rank == 0,
            timeout=COLLECTIVE_TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=address.take_listener() if rank == 0 else None,
        )
        backend = "nccl" if device.type == "cuda" and exclusive else "gloo"
        try:
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT
            )
            gradients = dist.new_group(backend=backend, timeout=COLLECTIVE_TIMEOUT)
        except RuntimeError as fault:
            raise PeerLostError(f"the ranks did not meet, another one is gone: {fault}") from fault
        assert isinstance(gradients, dist.ProcessGroup)
        self._gradients = gradients
        board.set_phase(before)
        log.info("rank %d of %d has joined, gradients go over %s", rank, world_size, backend)

    # Learner ------------------------------------------------------------------------------------------------

    def share(self, decision: Decision | None) -> Decision:
        message = torch.zeros(3, dtype=torch.int64)
        if decision is not None:
            message = torch.tensor([decision.operation, decision.num_updates, decision.generation])
        self._call("decision", lambda: dist.broadcast(message, src=0))
        operation, num_updates, generation = message.tolist()
        return Decision(Operation(operation), num_updates, generation)

    def gather(self, kind: str, values: Sequence[float]) -> Tensor:
        mine = torch.tensor(list(values), dtype=torch.float64)
        return self._gather(kind, mine)

    def tell(self, kind: str, value: T | None) -> T:
        box: list[Any] = [value]
        self._call(kind, lambda: dist.broadcast_object_list(box, src=0))
        return box[0]

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Rank 0's tensors on every rank, in place."""
        for tensor in tensors:
            host = tensor.detach().to("cpu", copy=True)
            self._call("parameters", lambda host=host: dist.broadcast(host, src=0))
            with torch.no_grad():
                tensor.copy_(host)

    # The agent's reducer ------------------------------------------------------------------------------------

    def all_reduce_mean_(self, flat: Tensor) -> None:
        """Replaces ``flat`` by its mean over ranks; every rank gets the same bits."""
        self._call("gradients", lambda: dist.all_reduce(flat, group=self._gradients))
        flat.div_(self.world_size)

    def all_gather_f64(self, values: Tensor) -> Tensor:
        """``[W, k]``: every rank's ``values`` ``[k]`` float64, in rank order."""
        return self._gather("statistics", values.detach().cpu()).to(values.device)

    # Inside -------------------------------------------------------------------------------------------------

    def _gather(self, kind: str, mine: Tensor) -> Tensor:
        rows = torch.empty(self.world_size, mine.numel(), dtype=torch.float64)
        self._call(kind, lambda: dist.all_gather(list(rows.unbind(0)), mine))
        return rows

    def _call(self, kind: str, collective: Callable[[], object]) -> None:
        self._sequence += 1
        self.calls[kind] += 1
        self._board.set_collective_seq(self._sequence)
        before = self._board.phase
        self._board.set_phase(Phase.COLLECTIVE)
        try:
            collective()
        except RuntimeError as fault:
            raise PeerLostError(
                f"collective {self._sequence} ({kind}) failed, another rank is gone: {fault}"
            ) from fault
        self._board.set_phase(before)

    def close(self) -> None:
        """Leaves the group; says what was called, so that ranks can be compared."""
        calls = ", ".join(f"{kind} {count}" for kind, count in sorted(self.calls.items()))
        log.info("collectives: %s", calls)
        dist.destroy_process_group()
