"""Makes a run of named series of any program: the best series of each meaning is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tandem.reporting.formats.shared.log_contents import LogContents
from tandem.reporting.formats.shared.log_lines import log_of
from tandem.reporting.formats.shared.log_timing import Points, usual_spacing
from tandem.reporting.formats.shared.metric_names import Meaning, Named, words_of
from tandem.reporting.run_record import CURVES, Axis, Curve, RunRecord

# A loss and the logarithm of a perplexity are the same if they differ by less than this, digits that were not printed
# and means over batches included.
_SAME_LOSS = 0.1
# No model is as unsure of a token as if it chose among 160,000: a higher loss is a sum over a sentence, or a text.
_MOST_NATS = 12.0
# What a translator comes down to, about, for each token.
_USUAL_NATS = 2.0


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
    best = min(
        fitting,
        key=lambda one: (
            one.named.doubtful,
            # Beside it, a plain `loss` is what was optimised, label smoothing included.
            "nll" not in words_of(one.name),
            -len(one.points),
            len(words_of(one.name)),
            one.name,
        ),
    )
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
    _tell_units(contents)
    contents.bleu = chosen(series, "bleu")
    contents.learning_rate = chosen(series, "learning_rate")
    record = replace(contents.record(source, path, "how it was computed is not in the data"), axis=axis, seconds={})
    step_seconds = Curve.of(chosen(series, "step_seconds"))
    if len(step_seconds):
        record = replace(record, step_seconds=step_seconds)
    return replace(record, steps_per_point=usual_spacing(record.step_seconds))


def _loss(series: list[Series], loss: Meaning, perplexity: Meaning) -> Points:
    """The loss in nats per token; by the perplexity, which is per token in all programs, where both do not agree."""
    losses, by_token = chosen(series, loss), [(at, log_of(value)) for at, value in chosen(series, perplexity)]
    known = dict(by_token)
    off = [abs(value - known[at]) / max(abs(known[at]), 1.0) for at, value in losses if at in known]
    return by_token if not losses or (off and median(off) > _SAME_LOSS) else losses


def _tell_units(contents: LogContents) -> None:
    """Find out how many tokens a value of the evaluation loss is of, if it is too high for one."""
    levels = [min((value for _, value in points), default=0.0) for points in (contents.train_loss, contents.eval_loss)]
    if not _MOST_NATS < levels[1] < math.inf:
        return
    contents.tokens_per_loss_value = tokens = levels[1] / _USUAL_NATS
    note = f"The evaluation loss is too high to be per token: it was judged as if a value were of {tokens:,.0f} tokens."
    if levels[0] <= _MOST_NATS:
        contents.train_loss = [(at, value * tokens) for at, value in contents.train_loss]
    contents.problems.append(note)
