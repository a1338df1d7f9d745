"""Small drawings made of characters: sparklines, bars, and tables that fit their width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# A name is cut down to this many characters before a column of figures is left out.
SHORTEST_NAME = 8


@dataclass(frozen=True)
class Paint:
    """How a part of a whole is filled: by colour, or by a character of its own where there are no colours."""

    style: str
    pattern: str
    letter: str


@dataclass(frozen=True)
class Pen:
    """The characters that a terminal can show."""

    coloured: bool
    plain: bool
    """Whether only ASCII can be shown."""

    @classmethod
    def of(cls, console: Console) -> Pen:
        coloured = console.color_system is not None and not console.no_color
        return cls(coloured, console.options.ascii_only)

    @property
    def levels(self) -> str:
        return "_.-=+*#" if self.plain else "▁▂▃▄▅▆▇█"

    def fill(self, paint: Paint) -> Text:
        """One character of a part."""
        if self.plain:
            return Text(paint.letter, paint.style)
        return Text("█" if self.coloured else paint.pattern, paint.style)

    def shown(self, line: Text) -> Text:
        """A line with nothing in it that the terminal cannot show."""
        if self.plain:
            line.plain = line.plain.replace("…", "~").encode("ascii", errors="replace").decode()
        return line


@dataclass(frozen=True)
class Column:
    """A column of a table; those with the highest `spare` are left out first, those with 0 never."""

    title: str
    cells: Sequence[str]
    spare: int = 0
    style: str = ""
    styles: Sequence[str] = ()
    """Of the cells, where they are not all alike."""

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.title, *self.cells))


def printable(text: str) -> str:
    """A text without what would break its line or speak to the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def sparkline(values: Sequence[float], width: int, pen: Pen) -> str:
    """The last values as a line of small bars from the least to the greatest; an `x` for what is no number."""
    shown = values[-width:] if width > 0 else []
    finite = [value for value in shown if math.isfinite(value)]
    # Halves: the difference of two numbers may be too large for one.
    least, most = min(finite, default=0.0) / 2, max(finite, default=0.0) / 2
    span = most - least

    def level(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        share = (value / 2 - least) / span if span else 0.0
        return pen.levels[min(int(share * len(pen.levels)), len(pen.levels) - 1)]

    return "".join(map(level, shown))


def progress_bar(share: float, width: int, pen: Pen, style: str) -> Text:
    done = round(min(max(share, 0.0), 1.0) * width)
    heavy, light = ("#", "-") if pen.plain else ("━", "─")
    return Text.assemble((heavy * done, style), (light * (width - done), "bright_black"))


def stacked_bar(parts: Sequence[tuple[Paint, float]], width: int, pen: Pen) -> Text:
    """One bar of this width, each part as long as its share."""
    bar = Text()
    for (paint, _), cells in zip(parts, apportion([share for _, share in parts], width), strict=True):
        for _ in range(cells):
            bar.append_text(pen.fill(paint))
    return bar


def apportion(shares: Sequence[float], places: int) -> list[int]:
    """Whole places for shares, all of them given away; the largest remainders are rounded up."""
    whole = sum(shares)
    if whole <= 0:
        return [0] * len(shares)
    exact = [share / whole * places for share in shares]
    given = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: given[index] - exact[index])
    for index in by_remainder[: places - sum(given)]:
        given[index] += 1
    return given


def table(columns: Sequence[Column], width: int) -> list[Text]:
    """A heading and its rows within a width; the first column holds names, the others figures.

    What does not fit is set closer, then the names are cut, then columns are left out.
    """
    kept = list(columns)
    while True:
        names, figures = kept[0], kept[1:]
        wanted = sum(column.width for column in figures)
        least = min(SHORTEST_NAME, names.width)
        gap = 2 if names.width + wanted + 2 * len(figures) <= width else 1
        if least + wanted + gap * len(figures) <= width or all(column.spare == 0 for column in figures):
            break
        kept.remove(max(figures, key=lambda column: column.spare))
    first = min(names.width, max(least, width - wanted - gap * len(figures)))
    rows = [_row([column.title for column in kept], kept, first, gap, ["bright_black"] * len(kept))]
    for number, cells in enumerate(zip(*(column.cells for column in kept), strict=True)):
        styles = [column.styles[number] if column.styles else column.style for column in kept]
        rows.append(_row(cells, kept, first, gap, styles))
    return rows


def _row(cells: Sequence[str], columns: Sequence[Column], first: int, gap: int, styles: Sequence[str]) -> Text:
    name = Text(cells[0], styles[0])
    name.truncate(first, overflow="ellipsis", pad=True)
    row = Text().append_text(name)
    for cell, column, style in zip(cells[1:], columns[1:], styles[1:], strict=True):
        row.append(" " * (gap + column.width - cell_len(cell)))
        row.append(cell, style)
    return row


def ends(left: Text, right: Text, width: int) -> Text:
    """Two texts at the ends of a line; if they do not fit, the longer one is cut."""
    space = max(width - 2, 0)
    if left.cell_len + right.cell_len > space:
        half = space // 2
        left.truncate(max(half, space - right.cell_len), overflow="ellipsis")
        right.truncate(max(space - left.cell_len, 0), overflow="ellipsis")
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right)
