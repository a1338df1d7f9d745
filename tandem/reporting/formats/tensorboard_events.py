"""Reads the TensorBoard event files of a run of any framework."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tandem.errors import TandemError
from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared.log_contents import LogContents
from tandem.reporting.formats.shared.log_timing import sessions_by_breaks, stretches_between
from tandem.reporting.formats.shared.metric_names import is_one_side, meaning_of, words_of
from tandem.reporting.formats.shared.named_series import Series, chosen, record_of
from tandem.reporting.run_record import Axis, RunRecord


class _Event(NamedTuple):
    """One value of a scalar."""

    step: float
    value: float
    moment: float


def read_tensorboard(path: Path, files: Sequence[Path] = ()) -> RunRecord:
    """One run from its event file, or from those of its sides, such as train and valid."""
    tags = _tags(files or [path])
    series = [
        Series(tag, named, [(event.step, event.value) for event in events])
        for tag, events in tags.items()
        if (named := meaning_of(tag)) is not None
    ]
    if not series:
        names = ", ".join(sorted(tags)[:5]) or "none at all"
        raise TandemError(
            f"{path}: none of the scalars is known as a loss, BLEU or learning rate (found: {names}); "
            "name them like train_loss, eval_loss, eval_bleu, learning_rate"
        )
    contents = LogContents(moments=[(event.step, event.moment) for events in tags.values() for event in events])
    # An epoch's loss is written after its evaluation.
    losses = [
        tags[one.name] for one in series if one.named.meaning == "train_loss" and "epoch" not in words_of(one.name)
    ]
    if losses and not chosen(series, "step_seconds") and _axis(series) == "step":
        written = [(event.step, event.moment) for event in max(losses, key=len)]
        contents.stretches = stretches_between(written, sessions_by_breaks(contents.moments))
        evaluations = [one.points for one in series if one.named.meaning in ("eval_loss", "bleu")]
        contents.evaluated = {step for points in evaluations for step, _ in points}
    if contents.stretches:
        contents.problems.append("Step times are worked out from the moments at which the training loss was written.")
    return record_of(series, contents, path, "TensorBoard events", _axis(series))


def _tags(files: Sequence[Path]) -> dict[str, list[_Event]]:
    """The scalars of event files by their tags, behind the name of the side that the directory is."""
    # Half of what this command would otherwise take to start.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.compat.proto.event_pb2 import SessionLog
    from tensorboard.util import tensor_util

    # It warns of damaged files, of which what can be read is read.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    tags: dict[str, list[_Event]] = {}
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
                tags.setdefault(tag, []).append(_Event(float(event.step), number, event.wall_time))
    return tags


def _axis(series: list[Series]) -> Axis:
    """Epochs, if all losses are called so."""
    losses = [one for one in series if one.named.meaning in ("train_loss", "eval_loss")]
    return "epoch" if losses and all("epoch" in words_of(one.name) for one in losses) else "step"


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
