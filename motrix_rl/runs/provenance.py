"""What a run was made of: versions, source state, machine. Imports none of the packages it names."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import motrix_rl

PACKAGES = (
    "motrix_rl",
    "torch",
    "mujoco",
    "gymnasium",
    "numpy",
    "pydantic",
    "omegaconf",
    "rich",
    "tensorboard",
)
GIT_TIMEOUT_S = 5.0


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that shape a run; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    if found["motrix_rl"] is None:  # run from a checkout without having been installed
        found["motrix_rl"] = motrix_rl.__version__
    return found


def git_state(source: Path | None = None) -> dict[str, Any] | None:
    """Commit and cleanliness of the checkout this package is run from.

    Args:
        source: Root of the source tree; the tree this file lies in when None.

    Returns:
        `{"commit", "branch", "dirty", "changed_files"}`, or None when it is not a git checkout of its own
        (an installed package inside somebody else's repository says nothing about us), or git is missing.
    """
    root = source or Path(__file__).resolve().parents[2]
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None
    commit = _git(root, "rev-parse", "--verify", "-q", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    changed = [line[3:] for line in (status or "").splitlines() if line]
    return {
        "commit": commit or None,
        "branch": _git(root, "rev-parse", "--abbrev-ref", "HEAD") if commit else None,
        "dirty": None if status is None else bool(changed),
        "changed_files": changed[:50],
    }


def machine_summary() -> dict[str, Any]:
    """The machine in a few words, for a run whose caller gives no fuller description."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _git(root: Path, *arguments: str) -> str | None:
    # GIT_DIR and the like, set by a hook we may be run from, would name another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ("git", "-C", str(root), *arguments),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
