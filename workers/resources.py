"""Everything shared between the processes of a run, made by the supervisor before the first spawn."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from topology import CollectorInfo
from transport import (
    ControlBlock,
    Descriptor,
    DeviceStorage,
    DeviceWeightMailbox,
    PipeReader,
    PipeWriter,
    Ring,
    SlotLayout,
    StartupHandshake,
    StopSignal,
    WeightMailbox,
    message_pipe,
)
from workers.planning import TrainingPlan
from workers.wiring import EVALUATOR, GroupAddress, collector_name, learner_name

FLOAT = 4


@dataclass(frozen=True)
class RunResources:
    """Shared objects, by who uses them. The supervisor keeps them alive until every worker has been reaped.

    Attributes:
        control: one row a worker.
        stop: the run's stop level.
        handshake: slot delivery and ready barrier.
        rings: by collector id.
        mailboxes: by NUMA node (None = unpinned); written by the rank the topology names.
        shared_weights: by owner rank, where the collectors read the policy on their owner's device.
        notices: pipes from the supervisor to each learner rank: (read end, write end).
        evaluation: policies that rank 0 wants evaluated; its doorbell wakes the evaluator.
        group: host and port where several ranks meet; None for a single one.
        listener: the socket that listens there, on machine 0.
    """

    control: ControlBlock
    stop: StopSignal
    handshake: StartupHandshake
    rings: dict[int, Ring]
    mailboxes: dict[int | None, WeightMailbox]
    shared_weights: dict[int, DeviceWeightMailbox]
    notices: dict[int, tuple[PipeReader, PipeWriter]]
    evaluation: WeightMailbox
    group: tuple[str, int] | None
    listener: socket.socket | None

    @classmethod
    def create(
        cls,
        plan: TrainingPlan,
        *,
        ring_capacity: int,
        start_generation: int,
        policy_size: int,
        deterministic: bool,
        group: tuple[str, int] | None = None,
        listener: socket.socket | None = None,
    ) -> RunResources:
        """Makes them all; nothing gets a name in the file system.

        Args:
            plan: the layout.
            ring_capacity: slots of each ring.
            start_generation: generation of the first slot (that of the checkpoint when resuming).
            policy_size: float32 values of one version of the policy.
            deterministic: collectors wait for versions, so each gets a doorbell.
            group: where several ranks meet.
            listener: the socket that listens there, on machine 0; closed with the rest.
        """
        topology = plan.topology
        names = worker_names(plan)
        owners = {info.rank: info.device for info in topology.learners}
        doorbells = len(topology.collectors) if deterministic else 0
        collectors = [collector_name(info.id) for info in topology.collectors]
        return cls(
            control=ControlBlock.create(names),
            stop=StopSignal(),
            handshake=StartupHandshake.create(names, collectors),
            rings={
                info.id: Ring.create(
                    slot_layout(plan, info),
                    ring_capacity,
                    start_generation=start_generation,
                    storage=DeviceStorage(owners[info.owner]) if info.ring == "cuda_ipc" else None,
                )
                for info in topology.collectors
            },
            mailboxes={
                node: WeightMailbox.create(FLOAT * policy_size, num_doorbells=doorbells)
                for node, _ in topology.mailbox_nodes
            },
            shared_weights={
                rank: DeviceWeightMailbox.create_on(
                    owners[rank], FLOAT * policy_size, num_doorbells=doorbells
                )
                for rank in sorted({info.owner for info in topology.collectors if info.weights == "cuda_ipc"})
            },
            notices={info.rank: message_pipe() for info in topology.learners},
            evaluation=WeightMailbox.create(FLOAT * policy_size, num_doorbells=1),
            group=group,
            listener=listener,
        )

    def group_address(self, rank: int) -> GroupAddress | None:
        """Where a rank meets the others; rank 0 also gets the listening socket."""
        if self.group is None:
            return None
        host, port = self.group
        held = None
        if rank == 0:
            assert self.listener is not None, "machine 0 holds the listener"
            held = Descriptor(os.dup(self.listener.fileno()), "ranks' meeting point")
        return GroupAddress(host, port, held)

    def close(self) -> None:
        """Gives all memory and descriptors back; call when every worker has been reaped."""
        for ring in self.rings.values():
            ring.close()
        for mailbox in (*self.mailboxes.values(), *self.shared_weights.values()):
            mailbox.close()
        for reader, writer in self.notices.values():
            reader.close()
            writer.close()
        self.handshake.close()
        self.control.close()
        self.evaluation.close()
        if self.listener is not None:
            self.listener.close()
        self.stop.close()


def worker_names(plan: TrainingPlan) -> list[str]:
    """Names of all workers, learners first."""
    topology = plan.topology
    names = [learner_name(info.rank) for info in topology.learners]
    names += [collector_name(info.id) for info in topology.collectors]
    return names + ([EVALUATOR] if topology.evaluator is not None else [])


def slot_layout(plan: TrainingPlan, info: CollectorInfo) -> SlotLayout:
    """Layout of one collector's slots."""
    spec = plan.env_spec
    return SlotLayout.for_shard(info.num_envs, spec.obs_dim, spec.action_dim, spec.critic_obs_dim)
