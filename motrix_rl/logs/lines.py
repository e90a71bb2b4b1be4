"""One line of a worker's log: `2026-11-29T18:43:55.123 INFO  collector-0 | message`."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass

# Five letters each, so that the columns stand below one another.
LEVEL_NAMES = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) ([A-Z]+) +(\S+) \| (.*)", re.DOTALL)
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles, links
    r"|\x1b[PX^_].*?(?:\x1b\\|$)"  # device strings
    r"|\x1b[ -/]*[0-~]"  # two-letter escapes
)
# What would end or rewrite a line on a terminal, Unicode's own line ends included.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class LogLine:
    """A parsed line: `time` as written (sorts as text), level, worker, message."""

    time: str
    level: str
    worker: str
    message: str


def timestamp(seconds: float | None = None) -> str:
    """Local time with milliseconds, the way log lines carry it.

    Args:
        seconds: Unix time; now when None.
    """
    seconds = time.time() if seconds is None else seconds
    whole = int(seconds // 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(whole))}.{int((seconds - whole) * 1000):03d}"


def format_lines(worker: str, level: int, text: str, seconds: float | None = None) -> str:
    """A message as log lines, each with its own prefix, so that it can be found and merged alone.

    Args:
        worker: Name of the worker.
        level: Python logging level; rounded down to one that has a name.
        text: The message, of any number of lines.
        seconds: Unix time; now when None.

    Returns:
        Text that ends with a newline.
    """
    name = (
        LEVEL_NAMES.get(level)
        or LEVEL_NAMES[max((n for n in LEVEL_NAMES if n <= level), default=logging.DEBUG)]
    )
    prefix = f"{timestamp(seconds)} {name:<5} {worker} | "
    return "".join(f"{prefix}{clean(line)}\n" for line in text.split("\n"))


def parse(line: str) -> LogLine | None:
    """Takes a log line apart; None for a line that is none of ours."""
    match = _LINE.fullmatch(line)
    return LogLine(match[1], match[2], match[3], match[4]) if match else None


def clean(text: str) -> str:
    """Text without escape sequences and control characters; a line that is safe to print on any terminal."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text).rstrip()
