"""Tells runs apart that were written into one file, one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from tandem.report.sources.lines import lines_of, listed

Mark = tuple[int, float]
"""The place of a line or row, and the step or epoch that it names."""


@dataclass(frozen=True)
class Part:
    """The lines or rows of one run, from the first to before the last, and how far it came."""

    begin: int
    end: int | None
    marks: int = 0
    last: float = 0.0


@dataclass(frozen=True)
class ChosenRun:
    """The run of a file that is read."""

    begin: int
    end: int | None
    last: float
    problems: tuple[str, ...]
    """Names the others."""

    def lines_of(self, path: Path) -> Iterator[str]:
        """The lines that belong to it."""
        return islice(lines_of(path), self.begin, self.end)


def longest_run(
    marks: Sequence[Mark],
    begins: re.Pattern[str] | None,
    path: Path,
    *,
    like: ChosenRun | None = None,
    together: Callable[[Sequence[Part]], bool] = lambda parts: False,
    axis: Literal["step", "epoch"] = "step",
) -> ChosenRun:
    """The run with the most marks, the later one of equals; or the one that came about as far as another is known to.

    `begins` is what a program says as it starts, before its first mark; `together` may find that the parts are one run.
    """
    firsts = _restarts(marks)
    places = [place for place, _ in marks]
    cuts = [places[first] for first in firsts]
    if begins is not None and cuts:
        cuts = _starts_before(path, begins, [(places[first - 1], places[first]) for first in firsts])
    bounds, indices = [0, *cuts, None], [0, *firsts, len(marks)]
    parts = [
        Part(begin or 0, end, after - since, max((step for _, step in marks[since:after]), default=0.0))
        for begin, end, since, after in zip(bounds, bounds[1:], indices, indices[1:], strict=False)
    ]
    if len(parts) == 1 or together(parts):
        return ChosenRun(0, None, max(part.last for part in parts), ())
    best = max(reversed(parts), key=lambda part: part.marks if like is None else -abs(part.last - like.last))
    others = others_left_out(best.last, [part.last for part in parts if part is not best], axis)
    return ChosenRun(best.begin, best.end, best.last, others)


def others_left_out(read: float, left_out: Sequence[float], axis: Literal["step", "epoch"] = "step") -> tuple[str, ...]:
    """A sentence on the runs that were not read, if there are any; each is known by how far it came."""
    if not left_out:
        return ()
    others = listed([f"{step:,.0f}" for step in sorted(set(left_out))])
    return (
        f"The log holds {len(left_out) + 1} runs from scratch; the one up to {axis} {read:,.0f} was read, not "
        f"those up to {axis} {others}: to read another, copy its lines into a file.",
    )


def _restarts(marks: Sequence[Mark]) -> list[int]:
    """Which marks begin another run from scratch: they go back to before the second step that the run had named.

    A run that is continued goes back, too, but to a checkpoint, and the first mark after that is a later one.
    """
    found: list[int] = []
    first: float | None = None
    second: float | None = None
    previous = 0.0
    for index, (_, step) in enumerate(marks):
        if first is not None and step < previous and (second is None or step < second):
            found.append(index)
            first = second = None
        if first is None:
            first = step
        elif second is None and step > first:
            second = step
        previous = step
    return found


def _starts_before(path: Path, begins: re.Pattern[str], gaps: Sequence[tuple[int, int]]) -> list[int]:
    """Where in each gap between two runs the second begins: with what its program says first, or with its mark."""
    cuts: list[int] = []
    lines = enumerate(lines_of(path))
    looked_at = 0
    for before, mark in gaps:
        inside = islice(lines, mark - looked_at)
        spoken = [place for place, line in inside if place > before and begins.search(line)]
        cuts.append(min([*spoken, mark]))
        looked_at = mark
    return cuts
