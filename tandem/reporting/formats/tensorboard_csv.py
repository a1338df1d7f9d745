"""Reads what TensorBoard's "Download as CSV" gives: a file for each curve, a folder of them for a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared.log_lines import lines_of, number
from tandem.reporting.formats.shared.metric_names import is_one_side, without_side
from tandem.reporting.formats.shared.timed_series import Event, record_of_events
from tandem.reporting.run_record import RunRecord

# TensorBoard names a file after the run and the tag, with an underscore for whatever a file name cannot hold.
_NAME = re.compile(r"(?:run-(?P<run>.*?)-tag-)?(?P<tag>.*)")
_DOWNLOADED_AGAIN = re.compile(r" ?\(\d+\)$")


def read_tensorboard_csv(path: Path, files: Sequence[Path] = ()) -> RunRecord:
    """One curve, or those of a run together."""
    tags: dict[str, list[Event]] = {}
    for file in files or [path]:
        tags.setdefault(_tag(file), []).extend(_events(file))
    alone = len(files or [path]) == 1
    problems = ["This is one curve; give the folder with the files of all curves of the run."] if alone else []
    return record_of_events(tags, path, "TensorBoard CSV", problems)


def _events(path: Path) -> Iterator[Event]:
    for line in lines_of(path):
        moment, step, value = ([number(cell.strip('" ')) for cell in line.split(",")] + [None] * 3)[:3]
        if moment is not None and step is not None and value is not None:
            yield Event(step, value, moment)


def _parts(path: Path) -> tuple[str, str]:
    """The run and the tag that a file is named after."""
    found = _NAME.fullmatch(_DOWNLOADED_AGAIN.sub("", path.stem))
    assert found is not None
    return found["run"] or "", found["tag"]


def _tag(path: Path) -> str:
    """The tag, behind the name of the side that the run is, such as `valid`."""
    run, tag = _parts(path)
    sides = [part for part in re.split(r"[_./\\]", run) if is_one_side(part)]
    return "/".join([*sides[-1:], tag])


def _group(files: Sequence[Path], top: Path) -> Iterator[Candidate]:
    """The curves of a run lie in one directory; those of its sides, as of train and valid, belong together."""
    runs: dict[tuple[Path, object], list[Path]] = {}
    for path in files:
        run, _ = _parts(path)
        others = without_side(run)
        runs.setdefault((path.parent, (run,) if others is None else others), []).append(path)
    for (place, _), found in runs.items():
        several = sum(parent == place for parent, _ in runs) > 1
        yield Candidate(found[0] if several else place, found, partial(read_tensorboard_csv, place, found))


FORMAT = LogFormat(
    title="a folder of TensorBoard's CSV downloads",
    read=read_tensorboard_csv,
    lines={"Wall time": r'^"?Wall time"?,"?Step"?,"?Value"?\s*$'},
    group=_group,
)
