"""The evaluator: plays whole episodes with each policy it is given, and keeps the best."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from motrix_rl.algorithms.fastsac.policy import Policy
from motrix_rl.checkpoint import BestStore, CheckpointSaveError
from motrix_rl.envs.base import BatchEnv
from motrix_rl.envs.evaluation import EvalResult, evaluate
from motrix_rl.errors import MotrixError
from motrix_rl.export import export_policy
from transport import Counter, Phase, WorkerBoard, wait_any
from workers.boot import make_worlds, start_together
from workers.learner_state import policy_payload
from workers.seeds import Stream, derive_seed
from workers.wiring import EvaluatorWiring, WorkerContext

log = logging.getLogger(__name__)


class StoppedError(Exception):
    """Stop was raised in the middle of an evaluation; its result is dropped."""


class Evaluator:
    """Evaluates one policy at a time; of those that come meanwhile the newest counts."""

    def __init__(
        self,
        context: WorkerContext,
        wiring: EvaluatorWiring,
        board: WorkerBoard,
        env: BatchEnv,
        policy: Policy,
    ) -> None:
        self.context = context
        self.env = env
        self.policy = policy
        self.weights = wiring.mailbox.reader(0)
        self.best = BestStore(Path(wiring.best))
        self.best_return = -np.inf if wiring.best_so_far is None else wiring.best_so_far
        self.board = board

    def run(self) -> None:
        """Evaluates what it is given until the run's last generation, or until stop is raised."""
        total = self.context.config.algo.trainer.num_learning_iterations
        generation = 0
        while generation < total and not self.context.stop.is_set():
            # Looks before it waits: a successor finds what its predecessor may have left undone.
            version = self.weights.poll()
            if version is None:
                self.board.set_phase(Phase.WAITING)
                wait_any([self.weights.doorbell_fd], self.context.stop, timeout_s=1.0)
                continue
            generation = version
            try:
                self._evaluate(generation)
            except StoppedError:
                return

    def _evaluate(self, generation: int) -> None:
        self.policy.load(self.weights.payload)
        self.board.set_phase(Phase.EVALUATING)
        started = time.monotonic()
        config = self.context.config
        result = evaluate(
            self.env,
            self._act,
            config.eval.episodes,
            seed=derive_seed(config.seed, Stream.EVALUATION),
        )
        self.board.add(Counter.EPISODES, result.episodes)
        seconds = time.monotonic() - started
        is_best = result.return_mean > self.best_return
        if is_best:
            self.best_return = result.return_mean
            self._keep(result, generation)
        self._tell(result, generation, seconds, is_best)

    def _act(self, obs: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
        if self.context.stop.is_set():
            raise StoppedError
        self.board.beat()
        self.policy.act(obs, out, deterministic=True, generator=None)

    def _keep(self, result: EvalResult, generation: int) -> None:
        facts = {
            "generation": generation,
            "return_mean": float(result.return_mean),
            "return_ci95": float(result.return_ci95),
            "episodes": int(result.episodes),
            "task": self.context.config.task,
        }
        payload = policy_payload(
            self.weights.payload, self.context.config.algo.agent, self.context.env_spec, **facts
        )
        self.board.set_phase(Phase.SAVING)  # however long a disk takes
        try:
            self.best.save(generation, payload, facts)
        except CheckpointSaveError as fault:  # a full disk costs the best policy, never the run
            log.error("best policy not saved: %s", fault)

    def _tell(self, result: EvalResult, generation: int, seconds: float, is_best: bool) -> None:
        log.info(
            "generation %d: return %.1f +- %.1f over %d episodes in %.1f s%s",
            generation,
            result.return_mean,
            result.return_ci95,
            result.episodes,
            seconds,
            " (best so far)" if is_best else "",
        )
        self.context.messages.send(
            {
                "kind": "eval",
                "generation": generation,
                "return_mean": float(result.return_mean),
                "return_ci95": float(result.return_ci95),
                "length_mean": float(result.length_mean),
                "episodes": int(result.episodes),
                "seconds": seconds,
                "best": is_best,
            },
            timeout_s=2.0,
        )


def run(context: WorkerContext, wiring: EvaluatorWiring, board: WorkerBoard) -> None:
    """Boots the evaluator and serves requests to the end of the run."""
    board.set_phase(Phase.BUILDING)
    torch.set_num_threads(context.num_threads)
    config = context.config
    seed = derive_seed(config.seed, Stream.EVALUATION)
    env = make_worlds(config, config.eval.episodes, seed=seed, num_threads=context.num_threads)
    evaluator = Evaluator(context, wiring, board, env, Policy(config.algo.agent, context.env_spec))
    if not start_together(context, board):
        return
    try:
        evaluator.run()
        if not context.stop.is_set():  # the run is at its end, and nobody is in a hurry
            _leave_policy_file(context)
    finally:
        env.close()


def _leave_policy_file(context: WorkerContext) -> None:
    """Writes ``policy.onnx`` of the best policy, where the packages for it are installed.

    Here, because this process has torch loaded, has nothing else left to do, and neither holds up nor fails a
    run; a file that the shutdown limit cuts off is written by ``motrix-rl export``.
    """
    try:
        report = export_policy(context.files.run_dir)
    except MotrixError as fault:
        log.warning("no policy.onnx: %s", fault)
        return
    if report is not None:
        log.info("wrote %s", report.path)
