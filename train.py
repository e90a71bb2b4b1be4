"""Trains a policy: `python train.py task=<task>/<backend>.<algorithm> key=value ...` (`--help` lists all)."""

import sys

if __name__ == "__main__":
    # Workers are spawned and load this file again under another name, so it does nothing outside this guard.
    try:
        from motrix_rl.cli.main import run_verb

        code = run_verb("train", sys.argv[1:], program="train.py")
    except KeyboardInterrupt:  # while it was being loaded
        code = 130
    sys.exit(code)
