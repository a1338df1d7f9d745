"""Reads the history of a W&B run: exported as CSV from a chart or by its API, or as a JSON object a line."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared.log_lines import listed, number, raw_lines_of
from tandem.reporting.formats.shared.timed_series import Event, record_of_events
from tandem.reporting.run_record import RunRecord

# W&B's own columns; all others are what the program has logged.
_STEP, _MOMENT, _SECONDS = "_step", "_timestamp", "_runtime"
# Names of the axis in the CSV of a chart, where each column is `run - metric`.
_CHART_STEPS = ("Step", "trainer/global_step", "train/global_step")
_OF_RUN = " - "


def read_wandb(path: Path) -> RunRecord:
    """The run of a history; of a chart with several runs, the one with the most values."""
    tags: dict[str, list[Event]] = {}
    for row in _rows(path):
        step = next((value for name in (_STEP, *_CHART_STEPS) if (value := _number(row.get(name))) is not None), None)
        moment = _number(row.get(_MOMENT, row.get(_SECONDS)))
        for name, cell in row.items():
            if step is not None and name not in _CHART_STEPS and (value := _number(cell)) is not None:
                tags.setdefault(name, []).append(Event(step, value, -1.0 if moment is None else moment))
    tags, problems = _one_run({name: events for name, events in tags.items() if not name.startswith("_")})
    return record_of_events(tags, path, "W&B history", problems)


def _number(cell: Any) -> float | None:
    if isinstance(cell, str):
        return number(cell) if cell else None
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    # JSON's integers have any length.
    return float(cell) if isinstance(cell, float) or abs(cell) <= sys.float_info.max else None


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows by the names of their columns; a line that was cut off at the end is left out."""
    lines = (line for line in raw_lines_of(path) if line.strip())
    first = next(lines, "")
    if not first.lstrip().startswith("{"):
        for cells in csv.DictReader([first, *lines]):
            # Tables say so of what was not logged at a step; lines of JSON leave it out.
            yield {name: cell for name, cell in cells.items() if cell and cell != "NaN"}
        return
    for line in (first, *lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _one_run(tags: dict[str, list[Event]]) -> tuple[dict[str, list[Event]], list[str]]:
    """The curves of the run with the most values, without its name, and a sentence on the other runs of a chart."""
    runs: dict[str, dict[str, list[Event]]] = {}
    for name, events in tags.items():
        run, _, metric = name.rpartition(_OF_RUN)
        runs.setdefault(run, {})[metric] = events
    if len(runs) < 2:
        return next(iter(runs.values()), {}), []
    sizes = {run: sum(map(len, curves.values())) for run, curves in runs.items()}
    best = max(runs, key=lambda run: sizes[run])
    others = listed([run or "one without a name" for run in runs if run != best])
    note = f"The chart holds several runs; {best} was read, not {others}: to read another, export it alone."
    return runs[best], [note]


FORMAT = LogFormat(
    title="a W&B history (CSV or JSON lines)",
    read=read_wandb,
    lines={
        _STEP: r'^(?:"?_\w+"?,|.*,)?"?_step"?(?:,|\s*$)|^\s*\{.*"_step":',
        _OF_RUN: r'^"?(?:Step|train(?:er)?/global_step)"?,.* - [^,]*',
    },
    file_name="wandb-history",
)
