"""Gradient steps that are skipped one after the other end a run, and leave its state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from workers.skipped_steps import NonFiniteStepsError, SkippedSteps


class FakeAgent:
    """Counts as an agent's optimisers do."""

    def __init__(self) -> None:
        self.updates_done = 0
        self.critic_group = SimpleNamespace(optimizer=SimpleNamespace(steps=0.0, skipped=0.0))
        self.actor_group = SimpleNamespace(optimizer=SimpleNamespace(steps=0.0, skipped=0.0))

    def step(self, *, finite: bool) -> None:
        self.updates_done += 1
        for group in (self.critic_group, self.actor_group):
            group.optimizer.steps += finite
            group.optimizer.skipped += not finite

    def state_dict(self) -> dict[str, int]:
        return {"updates_done": self.updates_done}


def watch(agent: FakeAgent, folder: Path, limit: int = 10) -> SkippedSteps:
    return SkippedSteps(agent, limit, folder, "learner-0")  # type: ignore[arg-type]


def drive(agent: FakeAgent, steps: SkippedSteps, count: int, *, finite: bool) -> None:
    for _ in range(count):
        agent.step(finite=finite)
        steps.after_updates()


def test_single_skips_are_borne(tmp_path: Path) -> None:
    agent = FakeAgent()
    steps = watch(agent, tmp_path)
    for _ in range(10):
        drive(agent, steps, 9, finite=False)
        drive(agent, steps, 1, finite=True)


def test_too_many_in_a_row_end_it_and_leave_the_state(tmp_path: Path) -> None:
    agent = FakeAgent()
    steps = watch(agent, tmp_path / "async_errors")
    drive(agent, steps, 25, finite=True)
    with pytest.raises(NonFiniteStepsError, match="max_nan_steps=10"):
        drive(agent, steps, 30, finite=False)
    assert agent.updates_done <= 25 + 20
    kept = torch.load(tmp_path / "async_errors" / "learner-0_nonfinite.pt", weights_only=True)
    assert kept["agent"]["updates_done"] == agent.updates_done


def test_zero_is_never(tmp_path: Path) -> None:
    agent = FakeAgent()
    drive(agent, watch(agent, tmp_path, limit=0), 100, finite=False)
