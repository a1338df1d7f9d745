"""Reads a table with named columns: CSV, with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from statistics import median

from tandem.errors import TandemError
from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared.log_contents import LogContents
from tandem.reporting.formats.shared.log_lines import number, raw_lines_of
from tandem.reporting.formats.shared.log_timing import Points
from tandem.reporting.formats.shared.metric_names import Named, meaning_of, speaks_of_evaluation, without_side, words_of
from tandem.reporting.formats.shared.named_series import Series, completed, record_of
from tandem.reporting.formats.shared.split_runs import RunPart, longest_run
from tandem.reporting.run_record import Axis, RunRecord

Column = list[float | None]

_SEPARATORS = ("\t", ";", ",")
_STEPS = ("step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "update", "updates", "batch")
_EPOCHS = ("epoch", "epochs")
_BESIDE_STEPS = frozenset({"global", "num", "number", "training", "train", "trainer", "of", "the", "n", "total"})


def fault_of_table(first: Sequence[str]) -> str | None:
    """What keeps the first lines of a file from being a table that can be read; None if they are no table at all.

    Empty if they are one that says something of a run.
    """
    separator = _separator(first[0]) if first else None
    if separator is None:
        return None
    names, *rows = [_split(line, separator) for line in first]
    named = any(_meaning(name) for name in names) and all(number(name) is None for name in names)
    if named and not rows:
        return "has names of columns but no row: wait until the program has written some, or look for the whole file"
    if named and len(names) == len(rows[0]) and any(number(cell) is not None for cell in rows[0]):
        return ""
    if all(cell == "" or number(cell) is not None for row in (names, *rows) for cell in row):
        return (
            "is a table without names of its columns: write them in a first line, "
            "for instance step,train_loss,eval_loss,eval_bleu,learning_rate"
        )
    return None


def read_table(path: Path) -> RunRecord:
    """The run in a table; columns whose names have no known meaning are passed over."""
    rows = _rows(path)
    names = next(rows, [])
    columns: list[Column] = [[] for _ in names]
    for row in rows:
        for place, column in enumerate(columns):
            # Most cells of a sparse table are empty, and an exception for each takes long.
            column.append(number(row[place]) if place < len(row) and row[place] else None)
    axis, at, problems = _axis(names, columns)
    marks = [(place, where) for place, where in enumerate(at) if where is not None]
    run = longest_run(marks, None, path, together=lambda parts: _complete_each_other(columns, at, parts), axis=axis)
    at, columns = at[run.begin : run.end], [column[run.begin : run.end] for column in columns]
    of_evaluation = speaks_of_evaluation(path.name)
    series = [
        Series(name, named, _points(at, column))
        for name, column in zip(names, columns, strict=True)
        if (named := _meaning(name, of_evaluation=of_evaluation)) is not None
    ]
    if not any(one.points for one in series):
        raise TandemError(f"{path}: the table has no rows with numbers; give one with a loss or BLEU at some steps")
    return record_of(series, LogContents(problems=[*problems, *run.problems]), path, "table", axis)


def _group(files: Sequence[Path], top: Path) -> Iterator[Candidate]:
    """Tables such as train.csv and valid.csv are one run: each has what the others lack."""
    runs: dict[tuple[Path, object], list[Path]] = {}
    for path in files:
        side = without_side(path.name)
        runs.setdefault((path.parent, path.name if side is None else side), []).insert(0, path)
    for paths in runs.values():
        yield Candidate(paths[0], paths, partial(_read_sides, paths))


def _read_sides(paths: Sequence[Path]) -> RunRecord:
    return reduce(completed, map(read_table, paths))


def _complete_each_other(columns: list[Column], at: Column, parts: Sequence[RunPart]) -> bool:
    """Whether no column but the axis goes on in a later part: rows of training may all stand before the others."""
    others = [column for column in columns if column is not at]
    filled = [
        {place for place, column in enumerate(others) if any(map(_is_number, column[part.begin : part.end]))}
        for part in parts
    ]
    return sum(len(places) for places in filled) == len(set().union(*filled))


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


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


def _meaning(name: str, *, of_evaluation: bool = False) -> Named | None:
    return None if _axis_of(name) else meaning_of(name, of_evaluation=of_evaluation)


def _axis_of(name: str) -> Axis | None:
    """Whether a column counts steps or epochs."""
    words = [word for word in words_of(name) if word not in _BESIDE_STEPS]
    if len(words) != 1:
        return None
    return "step" if words[0] in _STEPS else ("epoch" if words[0] in _EPOCHS else None)


def _axis(names: list[str], columns: list[Column]) -> tuple[Axis, Column, tuple[str, ...]]:
    """The column that counts; rows are counted where there is none."""
    kinds: dict[str, Column] = {}
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


def _starts_anew(steps: Column, epochs: Column) -> bool:
    """Whether the steps go back about as often as an epoch begins; after a resume both go back."""
    rows = zip(steps, epochs, strict=True)
    counted = [(step, epoch) for step, epoch in rows if step is not None and epoch is not None]
    begun = len({epoch for _, epoch in counted}) - 1
    back = sum(later < step and next_epoch > epoch for (step, epoch), (later, next_epoch) in pairwise(counted))
    return begun > 0 and back * 2 >= begun


def _points(at: Column, column: Column) -> Points:
    """Rows with a number. A NaN between numbers says that nothing was measured; a tail of them was measured."""
    rows = zip(at, column, strict=True)
    points = [(where, value) for where, value in rows if where is not None and value is not None]
    finite = [place for place, (_, value) in enumerate(points) if math.isfinite(value)]
    if not finite:
        return points
    end = finite[-1] + 1
    measured = [point for point in points[:end] if not math.isnan(point[1])]
    # Where only some rows are measured, the NaN of the rows in between say nothing, also not those at the end.
    spacing = median([later - place for place, later in pairwise(finite)] or [1])
    whole = len(measured) == end or len(points) - end > spacing
    return [*measured, *(point for point in points[end:] if whole or not math.isnan(point[1]))]


FORMAT = LogFormat(title="a CSV file with named columns", read=read_table, group=_group)
