"""Two networks of their own on one machine, joined by a cable, where the system lets a user make them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Addresses at the two ends of the cable.
ADDRESSES = ("10.213.7.1", "10.213.7.2")
TOOLS = ("unshare", "nsenter", "ip")


@dataclass(frozen=True)
class Network:
    """One network namespace.

    Attributes:
        address: its own.
        inside: words before a command that run it there.
    """

    address: str
    inside: tuple[str, ...]

    def bytes_over_the_cable(self) -> int:
        """What has arrived through the cable so far."""
        told = json.loads(_output([*self.inside, "ip", "-json", "-stats", "link", "show", "cable"]))
        return int(told[0]["stats64"]["rx"]["bytes"])


class NotAllowedError(Exception):
    """This system does not let a user make networks; says what stands in the way."""


@contextmanager
def two_networks() -> Iterator[tuple[Network, Network]]:
    """Two namespaces, each with its own loopback and one end of a cable; gone with the block.

    Raises:
        NotAllowedError: a tool is missing, or the system refuses.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NotAllowedError(f"{', '.join(missing)} not installed")
    with ExitStack() as stack:
        # The second lies in the first one's user namespace: root there may move a cable between the two.
        first = stack.enter_context(_holder(["unshare", "--user", "--map-root-user", "--net"]))
        second = stack.enter_context(_holder([*_enter(first), "unshare", "--net"]))
        _run([*_enter(first), "ip", "link", "add", "cable", "type", "veth", "peer", "name", "other"])
        _run([*_enter(first), "ip", "link", "set", "other", "netns", str(second), "name", "cable"])
        networks: list[Network] = []
        for pid, address in zip((first, second), ADDRESSES, strict=True):
            inside = _enter(pid)
            _run([*inside, "ip", "address", "add", f"{address}/24", "dev", "cable"])
            for device in ("lo", "cable"):
                _run([*inside, "ip", "link", "set", device, "up"])
            networks.append(Network(address, inside))
        yield networks[0], networks[1]


def _enter(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--target={pid}", "--user", "--net", "--")


@contextmanager
def _holder(words: list[str]) -> Iterator[int]:
    """A process that does nothing but keep a namespace alive; its id."""
    process = subprocess.Popen(
        [*words, "sleep", "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + 10
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != "sleep":  # then it is in there
            if process.poll() is not None:
                assert process.stderr is not None
                raise NotAllowedError(process.stderr.read().strip())
            assert time.monotonic() < end, f"{words} takes too long"
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def _run(words: list[str]) -> None:
    _output(words)


def _output(words: list[str] | tuple[str, ...]) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise NotAllowedError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
