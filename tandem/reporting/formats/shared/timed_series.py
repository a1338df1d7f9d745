"""Makes a run of named scalars of any program, each value with its step and, where it is known, its moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tandem.errors import TandemError
from tandem.reporting.formats.shared.log_contents import LogContents
from tandem.reporting.formats.shared.log_timing import sessions_by_breaks, stretches_between
from tandem.reporting.formats.shared.metric_names import meaning_of, words_of
from tandem.reporting.formats.shared.named_series import Series, chosen, record_of
from tandem.reporting.run_record import Axis, RunRecord

# Names that are listed where none of them is known.
_LISTED = 5


class Event(NamedTuple):
    """One value of a scalar."""

    step: float
    value: float
    moment: float = math.nan
    """Unix time, or seconds since the start; nan if it is not known."""


def record_of_events(
    tags: Mapping[str, Sequence[Event]], path: Path, source: str, problems: Sequence[str] = (), axis: Axis | None = None
) -> RunRecord:
    """The run of scalars by their names; names without a known meaning are passed over."""
    series = [
        Series(tag, named, [(event.step, event.value) for event in events])
        for tag, events in tags.items()
        if (named := meaning_of(tag)) is not None
    ]
    if not any(one.points for one in series):
        names = ", ".join(sorted(tags)[:_LISTED]) or "none at all"
        raise TandemError(
            f"{path}: none of the scalars is known as a loss, BLEU or learning rate (found: {names}); "
            "name them like train_loss, eval_loss, eval_bleu, learning_rate"
        )
    axis = axis or _axis(series)
    contents = LogContents(
        problems=[*problems],
        moments=[(event.step, event.moment) for events in tags.values() for event in events if event.moment >= 0],
    )
    # An epoch's loss is written after its evaluation.
    losses = [
        tags[one.name] for one in series if one.named.meaning == "train_loss" and "epoch" not in words_of(one.name)
    ]
    if losses and not chosen(series, "step_seconds") and axis == "step":
        written = [(event.step, event.moment) for event in max(losses, key=len) if event.moment >= 0]
        contents.stretches = stretches_between(written, sessions_by_breaks(contents.moments))
        evaluations = [one.points for one in series if one.named.meaning in ("eval_loss", "bleu")]
        contents.evaluated = {step for points in evaluations for step, _ in points}
    if contents.stretches:
        contents.problems.append("Step times are worked out from the moments at which the training loss was written.")
    return record_of(series, contents, path, source, axis)


def _axis(series: list[Series]) -> Axis:
    """Epochs, if all losses are called so."""
    losses = [one for one in series if one.named.meaning in ("train_loss", "eval_loss")]
    return "epoch" if losses and all("epoch" in words_of(one.name) for one in losses) else "step"
