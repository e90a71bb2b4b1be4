"""What all tests share: how hypothesis runs, how Ctrl-C arrives, and that markers name real properties."""

from __future__ import annotations

import re
import signal

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the machines that run this are busy, and time is tested where it is the contract.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Started in the background of a script, this process ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses a `covers` marker that names no property."""
    for item in items:
        for mark in item.iter_markers("covers"):
            wrong = [name for name in mark.args if not re.fullmatch(r"[ABCDEHRSTU]\d{1,2}", str(name))]
            if wrong or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: covers{mark.args!r} names no property")
