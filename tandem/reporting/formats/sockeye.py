"""Reads the metrics file of a Sockeye run: a line for each checkpoint, its number and then `name=value`, by tabs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared.log_lines import lines_of, number
from tandem.reporting.formats.shared.timed_series import Event, record_of_events
from tandem.reporting.run_record import RunRecord

BLEU_NOTE = "as Sockeye computes it on the sentences that its checkpoint decoder translates, from 0 to 1 in the file"


def read_sockeye(path: Path) -> RunRecord:
    """The run of a metrics file; steps are updates, or checkpoints in files of versions that do not write updates."""
    rows = [dict(cell.split("=", 1) for cell in cells if "=" in cell) for _, *cells in map(_cells, lines_of(path))]
    has_updates = all("updates" in row for row in rows if row)
    tags: dict[str, list[Event]] = {}
    for checkpoint, row in enumerate(rows, 1):
        step = number(row.get("updates", "")) if has_updates else float(checkpoint)
        seconds = number(row.get("time-elapsed", ""))
        for name, text in row.items():
            if step is not None and (value := number(text)) is not None:
                tags.setdefault(name, []).append(Event(step, value, -1.0 if seconds is None else seconds))
    problems = [] if has_updates else ["The file does not tell updates, so checkpoints are counted instead of steps."]
    record = record_of_events(tags, path, "Sockeye metrics", problems, axis="step")
    blown_up = bool(rows) and rows[-1].get("diverged") == "True"
    return replace(
        record,
        state="finished" if rows and rows[-1].get("converged") == "True" else "unknown",
        not_finite=blown_up,
        failure="Sockeye says that training has diverged" if blown_up else None,
        bleu_note=BLEU_NOTE if len(record.bleu) else None,
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")]


FORMAT = LogFormat(
    title="a Sockeye metrics file",
    read=read_sockeye,
    lines={"time-elapsed=": r"^\d+\t(?:[\w-]+=\S+\t)*time-elapsed=", "learning-rate=": r"^\d+\t(?:[\w-]+=\S+\t)+"},
)
