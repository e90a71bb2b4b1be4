"""Every legal pairing of collectors and learners, as a table: `python -m tests.e2e.grid --generations 300`.

Each run trains `cartpole-swingup` and is checked: it ends well, its updates are exactly those that strict owes, and
the tensors that all ranks share are the same bits in every rank's part of the last checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from motrix_rl.checkpoint import CheckpointStore, load_file
from tests.e2e.running import Run, options, strict_updates

COLLECTORS = (1, 2, 4, 8)
LEARNERS = (1, 2, 4)
PAIRINGS = [(c, n) for c in COLLECTORS for n in LEARNERS if c % n == 0]
LIMIT_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """What became of one pairing.

    Attributes:
        exit_code: of the run.
        generation: generations admitted.
        updates: updates done.
        due: updates that strict owes there.
        replicas_equal: ranks whose tensors were compared were the same to the bit.
        seconds: from the start to the exit.
        output: the terminal.
    """

    exit_code: int
    generation: int
    updates: int
    due: int
    replicas_equal: bool
    seconds: float
    output: str

    @property
    def good(self) -> bool:
        """Whether all of it is as it should be."""
        return self.exit_code == 0 and self.updates == self.due and self.replicas_equal


def run_pairing(directory: Path, collectors: int, learners: int, generations: int) -> Outcome:
    """Trains once and checks what came of it."""
    settings = options(
        task="cartpole-swingup/mujoco.fastsac",
        algo__trainer__num_learning_iterations=generations,
        async__num_collectors=collectors,
        async__num_learners=learners,
        async__boot_timeout_s=300,
        checkpoint__interval=generations // 2,
        logging__interval=generations // 3,
    )
    with Run(directory, settings) as run:
        code = run.finish(LIMIT_S)
        seconds = time.monotonic() - run.started
        run.assert_nothing_left()
        record = run.record()
        return Outcome(
            exit_code=code,
            generation=int(record.get("generation") or 0),
            updates=int(record.get("updates") or 0),
            due=strict_updates(generations, settings),
            replicas_equal=code == 0 and replicas_equal(directory, learners),
            seconds=seconds,
            output=run.output,
        )


def replicas_equal(run_dir: Path, learners: int) -> bool:
    """Whether all ranks wrote the same bits into the newest checkpoint, which has a part of each."""
    newest = CheckpointStore(run_dir / "checkpoints", 3).newest_valid(print)
    assert newest is not None, "no checkpoint"
    parts = [load_file(newest, f"rank{rank}.pt")["agent"]["replicated"] for rank in range(learners)]
    return all(
        part.keys() == parts[0].keys() and all(torch.equal(parts[0][name], part[name]) for name in part)
        for part in parts
    )


def main() -> int:
    """Runs them all; returns 0 when every one is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=300, help="of each run (default: 300)")
    given = parser.parse_args()
    print("collectors learners exit updates owed replicas seconds")
    good = True
    for collectors, learners in PAIRINGS:
        with tempfile.TemporaryDirectory() as place:
            found = run_pairing(Path(place) / "run", collectors, learners, given.generations)
        equal = "equal" if found.replicas_equal else "DIFFER"
        print(
            f"{collectors:10d} {learners:8d} {found.exit_code:4d} {found.updates:7d} {found.due:4d} "
            f"{equal:>8} {found.seconds:7.1f}",
            flush=True,
        )
        if not found.good:
            good = False
            print(found.output[-2000:])
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
