"""`motrix-rl train` and `train.py`: from the command line to a running training."""

from __future__ import annotations

import sys

from motrix_rl.config import dump_config, load_config
from motrix_rl.errors import UsageError

FLAGS = ("--help", "--print-config")


def main(words: list[str], program: str) -> int:
    """Validates everything, then hands over to the supervisor.

    Returns:
        The run's exit code: 0 finished or stopped on request, 1 failed.

    Raises:
        UsageError: the options are wrong, or this machine cannot serve them.
    """
    if "-h" in words or "--help" in words:
        from motrix_rl.cli.help import train_help

        print(train_help([word for word in words if not word.startswith("-")], program))
        return 0
    config = load_config([word for word in words if word != "--print-config"], FLAGS, tell)
    if "--print-config" in words:
        sys.stdout.write(dump_config(config))
        return 0
    # Only now: the supervisor's floor is heavy, and a mistake above is answered without it.
    from topology import TopologyError
    from workers.training import run_training

    try:
        return run_training(config)
    except TopologyError as error:
        raise UsageError(str(error)) from error


def tell(note: str) -> None:
    """Prints a note for the user beside the output proper."""
    print(f"note: {note}", file=sys.stderr)
