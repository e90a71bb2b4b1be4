"""Rows of text that fit: cut by cells of the terminal, flowed, dropped by importance, framed.

Rich's tables and panels wrap and squeeze where there is no room; a panel that is drawn over itself every
second must know its exact shape instead. So lines are made here, and Rich colours and draws them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

LABEL_CELLS = 10
MIN_FRAMED_HEIGHT = 5
MIN_FRAMED_WIDTH = 16


@dataclass(frozen=True)
class Glyphs:
    """Drawing characters; `ascii_only` for a terminal that cannot show others."""

    ascii_only: bool = False
    horizontal: str = "─"
    vertical: str = "│"
    corners: str = "╭╮╰╯"
    full: str = "█"
    empty: str = "░"
    ellipsis: str = "…"
    dot: str = "·"


UNICODE = Glyphs()
ASCII = Glyphs(True, "-", "|", "++++", "#", ".", "~", "|")


@dataclass(frozen=True)
class Row:
    """A row that may or may not be shown.

    Attributes:
        chunks: Pieces of text that are never broken while there is room for them on a line of their own.
        importance: The least important rows go first when there is no room.
        label: Stands in front in the label column; empty for none.
        style: Rich style of the chunks.
        flow: Go on in the next line where the chunks need more than one; otherwise the rest is left out.
        keep_end: Cut a chunk that is too long in its middle, so that the end of a path stays.
    """

    chunks: Sequence[str]
    importance: int
    label: str = ""
    style: str = ""
    flow: bool = True
    keep_end: bool = False


@dataclass(frozen=True)
class _Line:
    text: Text
    importance: int
    order: int = field(default=0)


def clean(text: str, glyphs: Glyphs) -> str:
    """Text without anything that moves a cursor; without what the terminal cannot show."""
    if text.isascii() and text.isprintable():
        return text
    kept = "".join(" " if ch == "\t" else ch for ch in text if ch == "\t" or _printable(ch))
    if glyphs.ascii_only:
        return kept.encode("ascii", "replace").decode()
    return kept


def _printable(character: str) -> bool:
    # Controls, formats (bidi marks), surrogates, unassigned; then separators of lines and paragraphs.
    category = unicodedata.category(character)
    return category[0] != "C" and category not in ("Zl", "Zp")


def fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Text cut to `width` cells, its end marked where it was cut."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + glyphs.ellipsis


def fit_middle(text: str, width: int, glyphs: Glyphs) -> str:
    """Text cut to `width` cells with its beginning and its end kept."""
    if cell_len(text) <= width or width < 12:
        return fit(text, width, glyphs)
    end = ""
    for character in reversed(text):
        if cell_len(end) + cell_len(character) > width // 2:
            break
        end = character + end
    return fit(text, width - cell_len(end), glyphs) + end


def flow(
    chunks: Sequence[str], width: int, glyphs: Glyphs, gap: str = "  ", keep_end: bool = False
) -> list[str]:
    """Chunks side by side in lines of at most `width` cells; one is cut only where it is longer than that."""
    cut = fit_middle if keep_end else fit
    lines: list[str] = []
    for chunk in chunks:
        piece = cut(chunk, width, glyphs)
        if not piece:
            continue
        if lines and cell_len(lines[-1]) + cell_len(gap) + cell_len(piece) <= width:
            lines[-1] += gap + piece
        else:
            lines.append(piece)
    return lines


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A progress bar of exactly `width` cells."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return glyphs.full * filled + glyphs.empty * (width - filled)


def framed(
    rows: Sequence[Row], title: str, subtitle: str, width: int, height: int, glyphs: Glyphs
) -> list[Text]:
    """Rows in a frame of at most `width` x `height` cells, the least important ones left out.

    Args:
        rows: In the order of reading.
        title: In the upper edge, left.
        subtitle: In the upper edge, right; dropped first.
        width: Cells a line.
        height: Lines.
        glyphs: What to draw with.

    Returns:
        At most `height` lines, with a frame exactly `width` cells wide, without one at most so.
    """
    if width < 1 or height < 1:
        return []
    if width < MIN_FRAMED_WIDTH or height < MIN_FRAMED_HEIGHT:
        return [line.text for line in _chosen(_lines(rows, width, glyphs), height)]
    inner = width - 4
    body = _chosen(_lines(rows, inner, glyphs), height - 2)
    side = Text(glyphs.vertical, style="dim")
    lines = [_edge(title, subtitle, width, glyphs)]
    for line in body:
        padding = " " * (inner - cell_len(line.text.plain))
        lines.append(Text.assemble(side, " ", line.text, padding, " ", side))
    corners = glyphs.corners[2] + glyphs.horizontal * (width - 2) + glyphs.corners[3]
    return [*lines, Text(corners, style="dim")]


def _lines(rows: Sequence[Row], width: int, glyphs: Glyphs) -> list[_Line]:
    lines: list[_Line] = []
    for row in rows:
        label = clean(row.label, glyphs)
        indent = LABEL_CELLS if label and width >= 3 * LABEL_CELLS else 0
        chunks = [clean(chunk, glyphs) for chunk in row.chunks]
        if label and not indent:
            chunks = [label, *chunks]
        flowed = flow(chunks, width - indent, glyphs, keep_end=row.keep_end)
        for number, piece in enumerate(flowed if row.flow else flowed[:1]):
            front = (
                fit(label, LABEL_CELLS - 1, glyphs).ljust(indent) if indent and number == 0 else " " * indent
            )
            text = Text.assemble((front, "bold" if number == 0 else ""), (piece, row.style))
            # What went over into a further line gives way to the first lines of most other rows.
            lines.append(_Line(text, row.importance - 40 * number, len(lines)))
    return lines


def _chosen(lines: list[_Line], height: int) -> list[_Line]:
    kept = sorted(lines, key=lambda line: (-line.importance, line.order))[: max(height, 0)]
    return sorted(kept, key=lambda line: line.order)


def _edge(title: str, subtitle: str, width: int, glyphs: Glyphs) -> Text:
    room = width - 6
    left = fit(clean(title, glyphs), room, glyphs)
    right = clean(subtitle, glyphs)
    if cell_len(left) + cell_len(right) + 4 > room:
        right = ""
    fill = width - 5 - cell_len(left) - (cell_len(right) + 3 if right else 0)
    edge = Text(glyphs.corners[0] + glyphs.horizontal + " ", style="dim")
    edge.append(left, style="bold cyan")
    edge.append(" " + glyphs.horizontal * fill, style="dim")
    if right:
        edge.append(f" {right} ", style="bold")
        edge.append(glyphs.horizontal, style="dim")
    edge.append(glyphs.corners[1], style="dim")
    return edge
