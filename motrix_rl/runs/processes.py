"""Who wrote this, and is that process still alive? Identity that survives the reuse of process ids."""

from __future__ import annotations

import os
import socket


def process_start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None for one that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold blanks and brackets; the fields after its last bracket do not.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def host_name() -> str:
    """This machine's (or container's) name."""
    return socket.gethostname()


def is_alive(host: str, pid: int, start_ticks: int | None) -> bool | None:
    """Whether that very process still runs; None where another host ran it and nobody here can tell."""
    if host != host_name():
        return None
    ticks = process_start_ticks(pid)
    return ticks is not None and (start_ticks is None or ticks == start_ticks)


def own_identity() -> tuple[str, int, int]:
    """(host, pid, start ticks) of this process."""
    pid = os.getpid()
    return host_name(), pid, process_start_ticks(pid) or 0
