"""Reads a table with named columns: CSV, with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from tandem.errors import TandemError
from tandem.report.record import RunRecord
from tandem.report.sources.curves import Points
from tandem.report.sources.lines import number, raw_lines_of
from tandem.report.sources.measured import Series, record_of
from tandem.report.sources.names import Named, meaning_of, speaks_of_evaluation, words_of

_SEPARATORS = ("\t", ";", ",")
_STEPS = ("step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "update", "updates", "batch")
_EPOCHS = ("epoch", "epochs")
_BESIDE_STEPS = frozenset({"global", "num", "number", "training", "train", "trainer", "of", "the", "n", "total"})


def is_table(header: str, first_row: str) -> bool:
    """Whether these are the first lines of a table that says something of a run."""
    separator = _separator(header)
    if separator is None:
        return False
    names = _split(header, separator)
    cells = _split(first_row, separator)
    known = any(_meaning(name, of_evaluation=False) for name in names)
    numbers = [[_cell(cell) is not None for cell in row] for row in (names, cells)]
    return known and len(names) == len(cells) and not any(numbers[0]) and any(numbers[1])


def read_table(path: Path) -> RunRecord:
    """What the columns tell; those whose names say nothing of a run are passed over."""
    rows = _rows(path)
    names = next(rows, [])
    columns: list[list[float | None]] = [[] for _ in names]
    for row in rows:
        for place, column in enumerate(columns):
            column.append(_cell(row[place]) if place < len(row) else None)
    axis, at, problems = _axis(names, columns)
    of_evaluation = speaks_of_evaluation(path.name)
    series = [
        Series(name, named, _points(at, column))
        for name, column in zip(names, columns, strict=True)
        if (named := _meaning(name, of_evaluation=of_evaluation)) is not None
    ]
    if not any(one.points for one in series):
        raise TandemError(f"{path}: the table has no rows with numbers; give one with a loss or BLEU at some steps")
    return record_of(series, path, source="table", axis=axis, problems=problems)


def _separator(header: str) -> str | None:
    return next((separator for separator in _SEPARATORS if separator in header), None)


def _split(line: str, separator: str) -> list[str]:
    cells = next(csv.reader([line], delimiter=separator), []) if '"' in line else line.split(separator)
    return [cell.strip() for cell in cells]


def _rows(path: Path) -> Iterator[list[str]]:
    """The header, then the rows; what was cut off at the end of the file is left out."""
    separator, names, last = ",", 0, ""
    for line in raw_lines_of(path):
        if not line.strip() or line.startswith("#"):
            continue
        if not names:
            separator = _separator(line) or ","
        # A comma is the decimal mark where it does not separate cells.
        cells = _split(line.rstrip("\n") if separator == "," else line.rstrip("\n").replace(",", "."), separator)
        names = names or len(cells)
        if not line.endswith("\n") and (len(cells) < names or ("." in last and "." not in cells[-1])):
            # Many programs do not end the last line; but here a number has lost its end.
            cells = cells[:-1]
        last = cells[-1] if cells else ""
        yield cells


def _cell(text: str) -> float | None:
    return number(text) if text else None


def _meaning(name: str, *, of_evaluation: bool) -> Named | None:
    return None if _axis_of(name) else meaning_of(name, of_evaluation=of_evaluation)


def _axis_of(name: str) -> Literal["step", "epoch"] | None:
    """Whether a column counts steps or epochs."""
    words = [word for word in words_of(name) if word not in _BESIDE_STEPS]
    if len(words) != 1:
        return None
    return "step" if words[0] in _STEPS else ("epoch" if words[0] in _EPOCHS else None)


def _axis(
    names: list[str], columns: list[list[float | None]]
) -> tuple[Literal["step", "epoch"], list[float | None], tuple[str, ...]]:
    """The column that counts; rows are counted where there is none."""
    kinds: dict[str, list[float | None]] = {}
    for name, column in zip(names, columns, strict=True):
        if (kind := _axis_of(name)) is not None:
            kinds.setdefault(kind, column)
    if "step" in kinds and not ("epoch" in kinds and _starts_anew(kinds["step"], kinds["epoch"])):
        return "step", kinds["step"], ()
    if "epoch" in kinds:
        note = "Steps are counted anew in every epoch, so epochs are used; the last row of each counts."
        return "epoch", kinds["epoch"], (note,) if "step" in kinds else ()
    rows = [float(row) for row in range(1, len(columns[0]) + 1)] if columns else []
    return "step", [*rows], ("No column counts steps or epochs, so rows are counted instead.",)


def _starts_anew(steps: list[float | None], epochs: list[float | None]) -> bool:
    """Whether the steps go back about as often as an epoch begins; after a resume they do so once."""
    counted = [step for step in steps if step is not None]
    begun = len({epoch for epoch in epochs if epoch is not None}) - 1
    back = sum(later < step for step, later in pairwise(counted))
    return begun > 0 and back * 2 >= begun


def _points(at: list[float | None], column: list[float | None]) -> Points:
    """Rows with a number. A NaN between numbers says that nothing was measured; at the end it is what was measured."""
    rows = zip(at, column, strict=True)
    points = [(where, value) for where, value in rows if where is not None and value is not None]
    finite = [place for place, (_, value) in enumerate(points) if not math.isnan(value)]
    if not finite or len(finite) == finite[-1] + 1:
        return points
    return [points[place] for place in finite]
