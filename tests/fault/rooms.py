"""`Room`: a view of the file system of its own, in which a run finds a small or a read-only disk.

A run is started in it by `Run(..., prefix=room.prefix)`; nobody else sees its mounts, and they end with it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.running import ROOT

#: A user namespace needs no root; where it is forbidden, root can do without.
WAYS = (("--user", "--map-root-user", "--mount"), ("--mount",))


class Room:
    """Holds a mount namespace open by a sleeping process.

    Args:
        script: shell commands that mount what is wanted.
    """

    def __init__(self, script: str) -> None:
        refusals: list[str] = []
        for flags in WAYS:
            self._holder = subprocess.Popen(
                ["unshare", *flags, "sh", "-ec", f"{script}\necho ready; exec sleep 900"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert self._holder.stdout is not None
            if self._holder.stdout.readline() == "ready\n":
                enter = ["--user", "--preserve-credentials"] if "--user" in flags else []
                self.prefix = [
                    "nsenter",
                    f"--target={self._holder.pid}",
                    *enter,
                    "--mount",
                    f"--wd={ROOT}",
                    "--",
                ]
                return
            refusals.append(self._holder.communicate()[1].strip())
        pytest.skip(f"no mounts of one's own here: {'; '.join(refusals)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.communicate()

    def inside(self, path: Path) -> Path:
        """A path as it is seen in the room, from outside of it."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def do(self, script: str) -> None:
        """Runs shell commands in the room."""
        subprocess.run([*self.prefix, "sh", "-ec", script], check=True, capture_output=True, timeout=20)
