"""Trains a policy: `python train.py task=<task>/<backend>.<algorithm> key=value ...` (`--help` lists all)."""

import sys

from motrix_rl.cli.main import run_verb

if __name__ == "__main__":
    # Workers are spawned, and import this file again under another name: everything stays behind this guard.
    sys.exit(run_verb("train", sys.argv[1:], program="train.py"))
