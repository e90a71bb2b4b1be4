"""CPU lists as text: the kernel's form (``0-5,7``) and the user's form (``0:5,7``), both inclusive."""

from __future__ import annotations

from collections.abc import Iterable

from topology.errors import CpuListError

MAX_CPU = 1 << 16
"""Larger numbers are a typing error, and would only fill memory."""


def parse(text: str) -> tuple[int, ...]:
    """Reads a CPU list; ranges are inclusive and written ``a-b`` or ``a:b``.

    Args:
        text: for instance ``"0:5,7"``, ``"0-5,7"``, or ``""`` for no CPU.

    Returns:
        The CPUs, ascending, each once.

    Raises:
        CpuListError: the text is not a CPU list.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        item = part.strip()
        if not item:
            if text.strip():
                raise CpuListError(
                    f"CPU list {text!r}: empty entry; write CPUs as '0:5,7' (ranges inclusive)"
                )
            continue
        cpus.update(_parse_item(item, text))
    return tuple(sorted(cpus))


def _parse_item(item: str, text: str) -> range:
    separator = ":" if ":" in item else "-"
    first, found, last = item.partition(separator)
    try:
        low = _parse_cpu(first)
        high = _parse_cpu(last) if found else low
    except ValueError:
        raise CpuListError(
            f"CPU list {text!r}: {item!r} is not a CPU number or a range; "
            "write CPUs as '0:5,7' (ranges inclusive)"
        ) from None
    if high < low:
        raise CpuListError(f"CPU list {text!r}: range {item!r} runs backwards; write '{high}:{low}'")
    if high >= MAX_CPU:
        raise CpuListError(
            f"CPU list {text!r}: CPU {high} is out of range; the highest possible is {MAX_CPU - 1}"
        )
    return range(low, high + 1)


def _parse_cpu(text: str) -> int:
    digits = text.strip()
    # isascii: int() would also accept signs, underscores and other scripts' digits.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(text)
    return int(digits)


def runs(cpus: Iterable[int]) -> list[tuple[int, int]]:
    """Cuts CPUs into maximal runs of consecutive numbers, as inclusive pairs."""
    result: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if result and cpu == result[-1][1] + 1:
            result[-1] = (result[-1][0], cpu)
        else:
            result.append((cpu, cpu))
    return result


def format_kernel(cpus: Iterable[int]) -> str:
    """Writes CPUs the way the kernel does, for instance ``0-5,7``."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs(cpus))


def format_user(cpus: Iterable[int]) -> str:
    """Writes CPUs the way a user types them on the command line, for instance ``0:5,7``."""
    return ",".join(str(low) if low == high else f"{low}:{high}" for low, high in runs(cpus))


def format_person(cpus: Iterable[int]) -> str:
    """Writes CPUs for a reader: like the kernel, but every second or fourth CPU as ``0,2..78``."""
    pieces: list[str] = []
    rest = sorted(set(cpus))
    while rest:
        length, step = _longest_stride(rest)
        if length < 4 or step == 1:
            length = next((i for i in range(1, len(rest)) if rest[i] != rest[i - 1] + 1), len(rest))
            pieces.append(format_kernel(rest[:length]))
        else:
            pieces.append(f"{rest[0]},{rest[1]}..{rest[length - 1]}")
        rest = rest[length:]
    return ",".join(pieces)


def _longest_stride(cpus: list[int]) -> tuple[int, int]:
    """How many CPUs from the first on are equally far apart, and how far."""
    if len(cpus) < 2:
        return len(cpus), 1
    step = cpus[1] - cpus[0]
    length = next((i for i in range(2, len(cpus)) if cpus[i] - cpus[i - 1] != step), len(cpus))
    return length, step
