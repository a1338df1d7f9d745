"""Reads the TensorBoard event files of a run of any framework."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
from tensorboard.util import tensor_util

from tandem.errors import TandemError
from tandem.report.record import Curve, RunRecord
from tandem.report.sources.curves import Points, Stretch, sessions_by_breaks, training_only
from tandem.report.sources.measured import Series, record_of
from tandem.report.sources.names import is_one_side, meaning_of, words_of

_ALL = 0
"""Keep every event: by default TensorBoard drops most."""


_USUAL_NAME = "events.out.tfevents"


@dataclass(frozen=True)
class _Tag:
    """A scalar over the steps, with the moment of each value."""

    name: str
    steps: tuple[float, ...]
    values: tuple[float, ...]
    moments: tuple[float, ...]


def read_tensorboard(path: Path, places: Sequence[Path]) -> RunRecord:
    """One run from the event files or directories of its sides, such as train and valid."""
    tags = [tag for place in places for tag in _tags(place)]
    series = [
        Series(tag.name, named, list(zip(tag.steps, tag.values, strict=True)))
        for tag in tags
        if (named := meaning_of(tag.name)) is not None
    ]
    if not series:
        names = ", ".join(sorted({tag.name for tag in tags})[:5]) or "none at all"
        raise TandemError(
            f"{path}: none of the scalars is known as a loss, BLEU or learning rate (found: {names}); "
            "name them like train_loss, eval_loss, eval_bleu, learning_rate"
        )
    moments = [point for tag in tags for point in zip(tag.steps, tag.moments, strict=True)]
    axis = _axis(series)
    seconds = _step_seconds(tags, series, moments) if axis == "step" else None
    derived = seconds is not None and not any(one.named.meaning == "step_seconds" for one in series)
    note = "Step times are worked out from the moments at which the training loss was written."
    return record_of(
        series,
        path,
        source="TensorBoard events",
        axis=axis,
        sessions=sessions_by_breaks(moments),
        derived_seconds=seconds,
        problems=(note,) if derived and seconds is not None and len(seconds) else (),
    )


def _tags(place: Path) -> list[_Tag]:
    # It warns of repeated graphs and the like, which do not matter here.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    with TemporaryDirectory() as spare:
        # It knows event files by their names only, so one by another name gets a link; and of a directory it reads
        # nothing behind a link that leads nowhere, so those that are there get links.
        files = {_USUAL_NAME: place} if place.is_file() else {file.name: file for file in place.iterdir()}
        for name, file in files.items():
            if file.is_file():
                (Path(spare) / name).symlink_to(file.resolve())
        events = EventAccumulator(spare, size_guidance={SCALARS: _ALL, TENSORS: _ALL}).Reload()
    directory = place if place.is_dir() else place.parent
    side = f"{directory.name}/" if is_one_side(directory.name) else ""
    known = events.Tags()
    tags = [_tag(side + name, events.Scalars(name)) for name in known[SCALARS]]
    for name in known[TENSORS]:
        scalars = [event for event in events.Tensors(name) if not event.tensor_proto.tensor_shape.dim]
        if scalars and meaning_of(side + name) is not None:
            values = [float(tensor_util.make_ndarray(event.tensor_proto)) for event in scalars]
            tags.append(_tag(side + name, scalars, values))
    return tags


def _tag(name: str, events: Sequence[Any], values: Sequence[float] | None = None) -> _Tag:
    return _Tag(
        name,
        tuple(float(event.step) for event in events),
        tuple(event.value for event in events) if values is None else tuple(values),
        tuple(float(event.wall_time) for event in events),
    )


def _axis(series: list[Series]) -> Literal["step", "epoch"]:
    """Epochs, if all losses are called so."""
    losses = [one for one in series if one.named.meaning in ("train_loss", "eval_loss")]
    return "epoch" if losses and all("epoch" in words_of(one.name) for one in losses) else "step"


def _step_seconds(tags: list[_Tag], series: list[Series], moments: Points) -> Curve | None:
    """Step times from the moments of the training loss; a silence between two sessions is no step."""
    means = {one.name: one.named.meaning for one in series}
    losses = [tag for tag in tags if means.get(tag.name) == "train_loss" and "epoch" not in words_of(tag.name)]
    if not losses:
        return None
    most = max(losses, key=lambda tag: len(tag.steps))
    breaks = np.array([session.ended for session in sessions_by_breaks(moments)[:-1]], dtype=np.float64)
    written = list(zip(most.steps, most.moments, strict=True))
    stretches = []
    for (step, since), (later, until) in pairwise(written):
        silent = np.any((breaks >= since) & (breaks < until))
        if later > step and until > since and not silent:
            stretches.append(Stretch(step, later, (until - since) / (later - step)))
    evaluated = {at for one in series if one.named.meaning in ("eval_loss", "bleu") for at, _ in one.points}
    return training_only(stretches, evaluated)[0]
