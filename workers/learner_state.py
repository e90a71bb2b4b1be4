"""What a checkpoint holds, and how a learner writes and reads it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from motrix_rl.checkpoint import CheckpointRef, CheckpointSaveError, CheckpointStore
from transport import wait_any
from workers.collectives import Ranks, ReplicasDifferError
from workers.collector_state import discard_pending, take_state
from workers.decision import UpdateSchedule

if TYPE_CHECKING:
    from workers.learning_loop import Learner

log = logging.getLogger(__name__)

POLICY_FILE = "policy.pt"


def rank_file(rank: int) -> str:
    """File of one rank's state inside a checkpoint."""
    return f"rank{rank}.pt"


def replay_file(rank: int) -> str:
    """File of one rank's replay inside a checkpoint."""
    return f"replay{rank}.pt"


@dataclass(frozen=True)
class ResumePoint:
    """Counters of the checkpoint a run goes on from.

    Attributes:
        generation: generations admitted when it was written.
        updates: updates done then.
        schedule: what was owed, and how.
        has_replay: the replay was saved too.
        num_envs: environments over all machines then.
        world_size: learners over all machines then.
    """

    generation: int
    updates: int
    schedule: UpdateSchedule
    has_replay: bool
    num_envs: int
    world_size: int

    @classmethod
    def read(cls, checkpoint: CheckpointRef) -> ResumePoint:
        """Reads the counters from the manifest; loads no tensor."""
        data = checkpoint.metadata
        return cls(
            generation=int(data["generation"]),
            updates=int(data["updates"]),
            schedule=UpdateSchedule(**data["schedule"]),
            has_replay=bool(data["replay"]),
            num_envs=int(data["num_envs"]),
            world_size=int(data["world_size"]),
        )


def policy_payload(vector: np.ndarray, config: Any, env_spec: Any, **extra: Any) -> dict[str, Any]:
    """Everything that acting needs, as plain containers and one tensor.

    Args:
        vector: flat policy (actor, normaliser), float32.
        config: the agent's settings.
        env_spec: sizes and bounds of the task.
        extra: plain values kept beside it (generation, updates).
    """
    return {
        "policy": torch.from_numpy(vector.copy()),
        "agent": config.model_dump(mode="json"),
        "env_spec": dict(vars(env_spec)),
        **extra,
    }


class CheckpointWriter:
    """Writes one rank's part of every checkpoint; a failure is told and the run goes on.

    Args:
        store: the run's checkpoints.
        save_replay: also write the replay.
        metadata: plain values every manifest carries (task, num_envs, configuration).
        collect_states: at scheduled generations the collectors' states belong in it (deterministic mode).
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        save_replay: bool,
        metadata: dict[str, Any],
        collect_states: bool = False,
    ) -> None:
        self._collect_states = collect_states
        self._store = store
        self._save_replay = save_replay
        self._metadata = metadata

    def save(self, learner: Learner) -> None:
        """Writes a checkpoint of the learners' present state: shards, barrier, manifest.

        All ranks call it together; rank 0 stages, commits, and tells the supervisor.

        Raises:
            ReplicasDifferError: the ranks hold different parameters.
        """
        ranks = learner.ranks
        check_replicas(ranks, learner.agent.parameter_hash)
        staged = ranks.tell("checkpoint", self._stage(learner) if ranks.rank == 0 else None)
        fault = staged["fault"] or self._write_shard(learner, staged["path"])
        written = bool(ranks.gather("checkpoint", [fault is None]).all())
        if ranks.rank != 0:
            return
        if not written:
            self._store.discard(learner.admitted)
            self._failed(learner, fault or "another rank could not write its part")
            return
        try:
            path = self._store.commit(learner.admitted, self._manifest(learner), expect=self._expected(ranks))
        except CheckpointSaveError as error:
            self._failed(learner, str(error))
            return
        discard_pending(path.parent, learner.admitted)
        log.info("saved checkpoint %s", path)
        learner.report.note(f"saved checkpoint {path}", checkpoint=str(path))

    def _stage(self, learner: Learner) -> dict[str, Any]:
        try:
            return {"path": self._store.stage(learner.admitted), "fault": None}
        except CheckpointSaveError as error:
            return {"path": None, "fault": str(error)}

    def _write_shard(self, learner: Learner, staging: Path) -> str | None:
        """Writes this rank's part; returns what went wrong, or None."""
        rank, agent = learner.ranks.rank, learner.agent
        state = {"agent": agent.state_dict(), "statistics": learner.statistics.state_dict()}
        try:
            self._store.save_file(staging, rank_file(rank), state)
            if self._save_replay:
                self._store.save_file(staging, replay_file(rank), learner.replay.state_dict())
            if rank == 0:
                vector = np.zeros(agent.policy_size, np.float32)
                agent.policy_vector(vector)
                facts = {"generation": learner.admitted, "updates": agent.updates_done}
                payload = policy_payload(vector, agent.config, agent.env_spec, **facts)
                self._store.save_file(staging, POLICY_FILE, payload)
            if self._collect_states and learner.acting is not None:
                take_states(learner, staging)
        except CheckpointSaveError as error:
            return str(error)
        return None

    def _expected(self, ranks: Ranks) -> list[str]:
        names = [rank_file(rank) for rank in range(ranks.world_size)]
        if self._save_replay:
            names += [replay_file(rank) for rank in range(ranks.world_size)]
        return [*names, POLICY_FILE]

    def _manifest(self, learner: Learner) -> dict[str, Any]:
        return {
            **self._metadata,
            "generation": learner.admitted,
            "updates": learner.agent.updates_done,
            "schedule": learner.schedule.state_dict(),
            "replay": self._save_replay,
            "world_size": learner.ranks.world_size,
        }

    @staticmethod
    def _failed(learner: Learner, why: str) -> None:
        log.error("checkpoint not saved: %s", why)
        learner.report.note(f"checkpoint not saved: {why}", level="error")


def take_states(learner: Learner, staging: Path) -> None:
    """Moves the states of this rank's collectors into a scheduled checkpoint.

    Each collector writes its state before it acts in this generation, for which it waits for the version
    that was just published; so it is there, or soon will be. A stop, or the loss of one, ends the wait: the
    checkpoint is then one like those of the asynchronous mode.
    """
    assert learner.acting is not None
    if not learner.acting.is_boundary(learner.admitted):
        return
    for endpoint in learner.assembler.endpoints:
        if endpoint.restarted_at >= learner.admitted:
            return  # it died before it had saved, and its successor's worlds are fresh ones
        while learner.collector_saved(endpoint.collector) < learner.admitted:
            wait_any([], learner.stop, timeout_s=0.002)
            if learner.stop.is_set() or learner.hear_notices():
                return
            learner.board.beat()
        take_state(staging, learner.admitted, endpoint.collector)


def check_replicas(ranks: Ranks, parameter_hash: Callable[[], str]) -> None:
    """Makes sure that all ranks hold the same bits.

    Raises:
        ReplicasDifferError: they do not.
    """
    if ranks.world_size == 1:
        return
    digest = parameter_hash()
    # 12 hexadecimal digits are 48 bits, which a float64 holds exactly.
    rows = ranks.gather("hash", [int(digest[at : at + 12], 16) for at in range(0, 48, 12)])
    if not bool((rows == rows[0]).all()):
        odd = [rank for rank in range(ranks.world_size) if not bool((rows[rank] == rows[0]).all())]
        raise ReplicasDifferError(
            f"parameters of rank(s) {odd} differ from rank 0's; the run cannot be trusted"
        )
