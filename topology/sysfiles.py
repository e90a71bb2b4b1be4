"""Reading small files of ``/proc`` and ``/sys`` that may be missing, under any root."""

from __future__ import annotations

from pathlib import Path

from topology import cpulist
from topology.errors import CpuListError


def read_text(path: Path) -> str | None:
    """The file's text without surrounding blanks, or None where it is missing or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The file's number, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_cpulist(path: Path) -> tuple[int, ...] | None:
    """The file's CPU (or node) list, or None where it is missing or malformed; empty is an answer too."""
    text = read_text(path)
    try:
        return None if text is None else cpulist.parse(text)
    except CpuListError:
        return None


def read_fields(path: Path) -> dict[str, str]:
    """``name: value`` lines (status, meminfo, NVIDIA's information file), without surrounding blanks."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        name, found, value = line.partition(":")
        if found:
            fields[name.strip()] = value.strip()
    return fields


def kib(value: str | None) -> int | None:
    """Bytes of a meminfo value such as ``5597400 kB``."""
    number = (value or "").split(" ")[0]
    return int(number) * 1024 if number.isdigit() else None
