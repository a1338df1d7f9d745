"""Small drawings made of characters: sparklines, bars, and tables that fit their width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

QUIET = "bright_black"
# A name is cut down to this many characters before a column of figures is left out.
SHORTEST_NAME = 8


@dataclass(frozen=True)
class Fill:
    """How a part of a bar is filled: by colour, by a pattern where there are no colours, by a letter in ASCII."""

    style: str
    pattern: str
    letter: str


@dataclass(frozen=True)
class CharacterSet:
    """The characters that a terminal can show."""

    coloured: bool
    ascii_only: bool

    @classmethod
    def of(cls, console: Console) -> CharacterSet:
        return cls(console.color_system is not None and not console.no_color, console.options.ascii_only)

    def block(self, fill: Fill) -> Text:
        """One character of a bar."""
        return Text(fill.letter if self.ascii_only else "█" if self.coloured else fill.pattern, fill.style)

    def shown(self, line: Text) -> Text:
        """A line with nothing in it that the terminal cannot show."""
        if self.ascii_only:
            line.plain = line.plain.replace("…", "~").encode("ascii", errors="replace").decode()
        return line


def printable(text: str) -> str:
    """A text without what would break its line or control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def sparkline(values: Sequence[float], width: int, characters: CharacterSet) -> str:
    """The last values as a line of small bars from the least to the greatest; an `x` for what is no number."""
    levels = "_.-=+*#" if characters.ascii_only else "▁▂▃▄▅▆▇█"
    shown = values[-width:] if width > 0 else []
    finite = [value for value in shown if math.isfinite(value)]
    # Halves: the difference of two numbers may be too large for one.
    least, most = min(finite, default=0.0) / 2, max(finite, default=0.0) / 2

    def level(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        share = (value / 2 - least) / (most - least) if most > least else 0.0
        return levels[min(int(share * len(levels)), len(levels) - 1)]

    return "".join(map(level, shown))


def progress_bar(share: float, width: int, characters: CharacterSet) -> Text:
    done = round(min(max(share, 0.0), 1.0) * width)
    heavy, light = ("#", "-") if characters.ascii_only else ("━", "─")
    return Text.assemble((heavy * done, "green"), (light * (width - done), QUIET))


def stacked_bar(parts: Sequence[tuple[Fill, float]], width: int, characters: CharacterSet) -> Text:
    """One bar of this width, each part as long as its share."""
    cells = apportion([share for _, share in parts], width)
    return Text().join(
        characters.block(fill) for (fill, _), count in zip(parts, cells, strict=True) for _ in range(count)
    )


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


def table(columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    """A heading and rows within a width; the first column holds names, the others figures.

    Each column has a title and a rank. What does not fit is set closer, then the names are cut, then columns are left
    out: the highest rank first, rank 0 never.
    """
    widths = [max(cell_len(title), *(row[index].cell_len for row in rows)) for index, (title, _) in enumerate(columns)]
    kept = list(range(len(columns)))
    while True:
        figures = kept[1:]
        wanted = sum(widths[index] for index in figures)
        gap = 2 if widths[0] + wanted + 2 * len(figures) <= width else 1
        room = width - wanted - gap * len(figures)
        spare = max(figures, key=lambda index: columns[index][1])
        if room >= min(SHORTEST_NAME, widths[0]) or not columns[spare][1]:
            break
        kept.remove(spare)
    name_width = min(widths[0], max(SHORTEST_NAME, room))

    def line(cells: Sequence[Text]) -> Text:
        name, *others = (cells[index].copy() for index in kept)
        name.truncate(name_width, overflow="ellipsis", pad=True)
        for cell, index in zip(others, figures, strict=True):
            cell.align("right", widths[index])
        return Text(" " * gap).join([name, *others])

    return [line([Text(title, QUIET) for title, _ in columns]), *map(line, rows)]


def justified(left: Text, right: Text, width: int) -> Text:
    """Two texts at the ends of a line; if they do not fit, the longer one is cut."""
    space = max(width - 2, 0)
    if left.cell_len + right.cell_len > space:
        left.truncate(max(space // 2, space - right.cell_len), overflow="ellipsis")
        right.truncate(max(space - left.cell_len, 0), overflow="ellipsis")
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right)
