"""What a checkpoint holds, and how a learner writes and reads it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from motrix_rl.checkpoint import CheckpointRef, CheckpointSaveError, CheckpointStore
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
    """

    generation: int
    updates: int
    schedule: UpdateSchedule
    has_replay: bool
    num_envs: int

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
    """Writes checkpoints of one rank; a failure is told and the run goes on.

    Args:
        store: the run's checkpoints.
        save_replay: also write the replay.
        metadata: plain values every manifest carries (task, num_envs, configuration).
    """

    def __init__(self, store: CheckpointStore, *, save_replay: bool, metadata: dict[str, Any]) -> None:
        self._store = store
        self._save_replay = save_replay
        self._metadata = metadata

    def save(self, learner: Learner) -> None:
        """Writes a checkpoint of the learner's present state and tells the supervisor where it is."""
        try:
            path = self._write(learner)
        except CheckpointSaveError as fault:
            log.error("checkpoint not saved: %s", fault)
            learner.report.note(f"checkpoint not saved: {fault}", level="error")
            return
        log.info("saved checkpoint %s", path)
        learner.report.note(f"saved checkpoint {path}", checkpoint=str(path))

    def _write(self, learner: Learner) -> Any:
        agent = learner.agent
        staging = self._store.stage(learner.admitted)
        state = {
            "agent": agent.state_dict(),
            "statistics": learner.statistics.state_dict(),
        }
        self._store.save_file(staging, rank_file(learner.rank), state)
        if self._save_replay:
            self._store.save_file(staging, replay_file(learner.rank), learner.replay.state_dict())
        vector = np.zeros(agent.policy_size, np.float32)
        agent.policy_vector(vector)
        extra = {"generation": learner.admitted, "updates": agent.updates_done}
        self._store.save_file(
            staging, POLICY_FILE, policy_payload(vector, agent.config, agent.env_spec, **extra)
        )
        return self._store.commit(
            learner.admitted,
            {
                **self._metadata,
                "generation": learner.admitted,
                "updates": agent.updates_done,
                "schedule": learner.schedule.state_dict(),
                "replay": self._save_replay,
            },
        )
