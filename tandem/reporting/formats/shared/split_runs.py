"""Splits a file into the runs that were written into it one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

from tandem.reporting.formats.shared.log_lines import lines_of, listed
from tandem.reporting.run_record import Axis

Mark = tuple[int, float]
"""The place of a line or row, and the step or epoch that it names."""


@dataclass(frozen=True)
class RunPart:
    """The lines or rows of one run in a file, from the first to before the last, and how far it came."""

    begin: int
    end: int | None
    marks: int
    last: float
    problems: tuple[str, ...] = ()
    """Names the other runs of the file."""

    def lines_of(self, path: Path) -> Iterator[str]:
        """The lines that belong to it."""
        return islice(lines_of(path), self.begin, self.end)


def step_marks(path: Path, progress: re.Pattern[str]) -> list[Mark]:
    """The lines of progress; the group that is found last is their step."""
    found = ((place, progress.search(line)) for place, line in enumerate(lines_of(path)))
    return [(place, float(mark[mark.lastindex or 0].replace(",", ""))) for place, mark in found if mark is not None]


def longest_run(
    marks: Sequence[Mark],
    begins: re.Pattern[str] | None,
    path: Path,
    *,
    like: RunPart | None = None,
    together: Callable[[Sequence[RunPart]], bool] = lambda parts: False,
    axis: Axis = "step",
) -> RunPart:
    """The run with the most marks, the later one of equals; or the one that came about as far as another is known to.

    `begins` is what a program says as it starts, before its first mark; `together` may find that the parts are one run.
    """
    firsts = _restarts(marks)
    cuts = [marks[first][0] for first in firsts]
    if begins is not None and cuts:
        cuts = _starts_before(path, begins, [(marks[first - 1][0], marks[first][0]) for first in firsts])
    parts = [
        RunPart(begin, end, after - since, max((step for _, step in marks[since:after]), default=0.0))
        for (begin, end), (since, after) in zip(
            zip([0, *cuts], [*cuts, None], strict=True), pairwise([0, *firsts, len(marks)]), strict=True
        )
    ]
    if len(parts) == 1 or together(parts):
        return RunPart(0, None, len(marks), max(part.last for part in parts))
    best = max(reversed(parts), key=lambda part: part.marks if like is None else -abs(part.last - like.last))
    return replace(best, problems=others_left_out(best.last, [part.last for part in parts if part is not best], axis))


def others_left_out(read: float, left_out: Sequence[float], axis: Axis = "step") -> tuple[str, ...]:
    """A sentence on the runs that were not read, if there are any; each is known by how far it came."""
    if not left_out:
        return ()
    others = listed([f"{step:,.0f}" for step in sorted(set(left_out))])
    return (
        f"The log holds {len(left_out) + 1} runs from scratch; the one up to {axis} {read:,.0f} was read, not "
        f"those up to {axis} {others}: to read another, copy its lines into a file.",
    )


def _restarts(marks: Sequence[Mark]) -> list[int]:
    """Indices of the marks that begin another run from scratch: they go back to before its second step.

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
