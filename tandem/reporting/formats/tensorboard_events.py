"""Reads the TensorBoard event files of a run of any framework."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared.metric_names import is_one_side, meaning_of
from tandem.reporting.formats.shared.timed_series import Event, record_of_events
from tandem.reporting.run_record import RunRecord


def read_tensorboard(path: Path, files: Sequence[Path] = ()) -> RunRecord:
    """One run from its event file, or from those of its sides, such as train and valid."""
    return record_of_events(_tags(files or [path]), path, "TensorBoard events")


def _tags(files: Sequence[Path]) -> dict[str, list[Event]]:
    """The scalars of event files by their tags, behind the name of the side that the directory is."""
    # Half of what this command would otherwise take to start.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.compat.proto.event_pb2 import SessionLog
    from tensorboard.util import tensor_util

    # It warns of damaged files, of which what can be read is read.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    tags: dict[str, list[Event]] = {}
    for file in files:
        side = f"{file.parent.name}/" if is_one_side(file.parent.name) else ""
        for event in LegacyEventFileLoader(str(file)).Load():
            if event.session_log.status == SessionLog.START:
                # A program that goes on from a checkpoint takes back what came after it.
                for tag, events in tags.items():
                    tags[tag] = [one for one in events if one.step < event.step or not tag.startswith(side)]
            for value in event.summary.value:
                tag, kind = side + value.tag, value.WhichOneof("value")
                if kind == "tensor" and not value.tensor.tensor_shape.dim and meaning_of(tag) is not None:
                    number = float(tensor_util.make_ndarray(value.tensor))
                elif kind == "simple_value":
                    number = value.simple_value
                else:
                    continue
                tags.setdefault(tag, []).append(Event(float(event.step), number, event.wall_time))
    return tags


def _group(files: Sequence[Path], top: Path) -> Iterator[Candidate]:
    """The event files of a run lie in one directory, or in one for each side of it, as train/ and valid/."""
    runs: dict[Path, list[Path]] = {}
    for path in files:
        place = path.parent
        runs.setdefault(place.parent if place != top and is_one_side(place.name) else place, []).append(path)
    for run, found in runs.items():
        yield Candidate(run, found, partial(read_tensorboard, run, found))


FORMAT = LogFormat(
    title="TensorBoard event files",
    read=read_tensorboard,
    # The first event of a file names its version.
    magic=b"brain.Event:",
    file_name="tfevents",
    group=_group,
)
