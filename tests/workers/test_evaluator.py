"""The evaluator: whole episodes of one version, the best one kept, never in the way."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.checkpoint import BestStore
from motrix_rl.config import load_config
from tests.e2e.running import options, word
from tests.e2e.tasks_e2e import Toy, ToyOptions
from transport import ControlBlock, StopSignal, WeightMailbox, message_pipe
from workers.evaluator import Evaluator
from workers.wiring import EvaluatorWiring


class Bench:
    """An evaluator in this process, with real mailbox, pipe and directory."""

    def __init__(self, directory: Path, best_so_far: float | None = None) -> None:
        settings = options(eval__interval=20, eval__episodes=4)
        config = load_config([word(key, value) for key, value in settings.items()])
        env = Toy(ToyOptions.model_validate({}), 4, seed=3)
        self.policy = Policy(config.algo.agent, env.env_spec)
        self.mailbox = WeightMailbox.create(4 * self.policy.size, num_doorbells=1)
        self.writer = self.mailbox.writer()
        self.control = ControlBlock.create(["evaluator"])
        self.messages, pipe = message_pipe()
        self.stop = StopSignal()
        context: Any = SimpleNamespace(
            config=config, control=self.control, stop=self.stop, messages=pipe, env_spec=env.env_spec
        )
        wiring = EvaluatorWiring(self.mailbox, str(directory / "best"), best_so_far)
        self.best = BestStore(directory / "best")
        self.evaluator = Evaluator(context, wiring, self.control.board("evaluator"), env, self.policy)

    def publish(self, generation: int) -> None:
        rng = np.random.default_rng(generation)
        self.writer.publish(generation, rng.standard_normal(self.policy.size).astype(np.float32))

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.evaluator.run)
        thread.start()
        return thread

    def serve(self, *generations: int) -> list[dict[str, Any]]:
        """Publishes one policy after the other, each once the one before has been told; ends by itself."""
        told: list[dict[str, Any]] = []
        thread = self.start()
        for expected, generation in enumerate(generations, start=1):
            self.publish(generation)
            for _ in range(1000):
                told += self.messages.drain()
                if len(told) >= expected:
                    break
                threading.Event().wait(0.01)
        thread.join(10)
        assert not thread.is_alive()
        return told


@pytest.mark.covers("E3")
def test_each_request_is_answered_and_the_best_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    told = bench.serve(20, 30, 40, 60)
    assert [(t["generation"], t["episodes"]) for t in told] == [(20, 4), (30, 4), (40, 4), (60, 4)]
    returns = [t["return_mean"] for t in told]
    assert [t["best"] for t in told] == [r > max(returns[:i], default=-np.inf) for i, r in enumerate(returns)]
    kept = bench.best.open()
    assert kept is not None
    assert kept.metadata["return_mean"] == max(returns)
    assert kept.metadata["generation"] == told[int(np.argmax(returns))]["generation"]


@pytest.mark.covers("S3")
def test_a_successor_replaces_the_best_by_something_better_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, best_so_far=1e9)
    told = bench.serve(60)
    assert told[0]["best"] is False
    assert bench.best.open() is None


@pytest.mark.covers("S3")
def test_a_successor_finds_what_its_predecessor_left_undone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.publish(40)
    bench.publish(60)  # of two, the newer one counts
    thread = bench.start()
    thread.join(10)
    assert not thread.is_alive()
    assert [told["generation"] for told in bench.messages.drain()] == [60]


@pytest.mark.covers("S5")
def test_stop_ends_an_evaluation_in_the_middle(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.evaluator.env.options = ToyOptions.model_validate({"step_s": 0.05})
    bench.publish(20)
    thread = bench.start()
    threading.Event().wait(0.3)
    assert thread.is_alive()
    bench.stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert bench.messages.drain() == []
    assert bench.best.open() is None
