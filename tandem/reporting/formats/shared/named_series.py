"""Makes a run of named series of any program: the best series of each meaning is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tandem.reporting.formats.shared.log_contents import LogContents
from tandem.reporting.formats.shared.log_lines import log_of
from tandem.reporting.formats.shared.log_timing import Points, usual_spacing
from tandem.reporting.formats.shared.metric_names import Meaning, Named, words_of
from tandem.reporting.run_record import CURVES, Axis, Curve, RunRecord


@dataclass(frozen=True)
class Series:
    """Values over steps, under a name whose meaning is known."""

    name: str
    named: Named
    points: Points


def chosen(series: list[Series], meaning: Meaning) -> Points:
    """The points of the best series of a meaning, in the record's unit: most points, then the plainest name."""
    fitting = [one for one in series if one.named.meaning == meaning and one.points]
    if not fitting:
        return []
    best = min(fitting, key=lambda one: (one.named.doubtful, -len(one.points), len(words_of(one.name)), one.name))
    if best.named.inverse:
        return [(at, 1 / value) for at, value in best.points if value > 0]
    return [(at, value * best.named.factor) for at, value in best.points]


def completed(record: RunRecord, other: RunRecord) -> RunRecord:
    """A record with the curves that it lacks taken from another one of the same run."""
    lacking = [name for name in CURVES if not len(getattr(record, name))]
    taken = {name: getattr(other, name) for name in lacking if len(getattr(other, name))}
    if "bleu" in taken:
        taken["bleu_note"] = other.bleu_note
    return replace(record, **taken, problems=(*record.problems, *other.problems))


def record_of(series: list[Series], contents: LogContents, path: Path, source: str, axis: Axis) -> RunRecord:
    """A run from named series; `contents` has what else is known of it."""
    contents.train_loss = _loss(series, "train_loss", "train_ppl")
    contents.eval_loss = _loss(series, "eval_loss", "eval_ppl")
    if not contents.eval_loss and not chosen(series, "train_loss") and not any("train" in one.name for one in series):
        # A plain perplexity is the evaluation's as a rule.
        contents.train_loss, contents.eval_loss = contents.eval_loss, contents.train_loss
    contents.bleu = chosen(series, "bleu")
    contents.learning_rate = chosen(series, "learning_rate")
    record = replace(contents.record(source, path, "how it was computed is not in the data"), axis=axis, seconds={})
    step_seconds = Curve.of(chosen(series, "step_seconds"))
    if len(step_seconds):
        record = replace(record, step_seconds=step_seconds)
    return replace(record, steps_per_point=usual_spacing(record.step_seconds))


def _loss(series: list[Series], loss: Meaning, perplexity: Meaning) -> Points:
    return chosen(series, loss) or [(at, log_of(value)) for at, value in chosen(series, perplexity)]
