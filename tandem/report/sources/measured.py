"""Named series of any program put together as one run: the best series of each meaning is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tandem.report.record import Curve, RunRecord, Session
from tandem.report.sources.curves import Points, bleu_curve, repeated, usual_spacing, whole_session
from tandem.report.sources.lines import log_of
from tandem.report.sources.names import Meaning, Named, words_of

_CURVES = ("train_loss", "eval_loss", "bleu", "learning_rate", "step_seconds")


@dataclass(frozen=True)
class Series:
    """Values under a name of which the meaning is known."""

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
    lacking = [name for name in _CURVES if not len(getattr(record, name))]
    taken = {name: getattr(other, name) for name in lacking if len(getattr(other, name))}
    if "bleu" in taken:
        taken["bleu_note"] = other.bleu_note
    return replace(record, **taken, problems=(*record.problems, *other.problems))


def _loss(series: list[Series], loss: Meaning, perplexity: Meaning) -> Curve:
    points = chosen(series, loss) or [(at, log_of(value)) for at, value in chosen(series, perplexity)]
    return Curve.of(points)


def record_of(
    series: list[Series],
    path: Path,
    *,
    source: str,
    axis: Literal["step", "epoch"],
    sessions: tuple[Session, ...] = (),
    derived_seconds: Curve | None = None,
    problems: tuple[str, ...] = (),
) -> RunRecord:
    """A run from named series; `derived_seconds` are step times for programs that do not write theirs."""
    train_loss = _loss(series, "train_loss", "train_ppl")
    eval_loss = _loss(series, "eval_loss", "eval_ppl")
    if not len(eval_loss) and not chosen(series, "train_loss") and not any("train" in one.name for one in series):
        # Perplexity alone is what people write down of evaluations.
        train_loss, eval_loss = eval_loss, train_loss
    scored = bleu_curve(chosen(series, "bleu"), eval_loss)
    learning_rate = Curve.of(chosen(series, "learning_rate"))
    step_seconds = Curve.of(chosen(series, "step_seconds"))
    if not len(step_seconds) and derived_seconds is not None:
        step_seconds = derived_seconds
    sessions = sessions or whole_session(train_loss, eval_loss, scored.curve)
    unsigned = "how it was computed is not in the data"
    return RunRecord(
        source=source,
        path=str(path),
        state="unknown",
        axis=axis,
        problems=(*problems, *scored.problems),
        sessions=sessions,
        repeated_steps=repeated(sessions),
        train_loss=train_loss,
        eval_loss=eval_loss,
        bleu=scored.curve,
        bleu_note="; ".join(filter(None, [unsigned, scored.note])) if len(scored.curve) else None,
        learning_rate=learning_rate,
        step_seconds=step_seconds,
        steps_per_point=usual_spacing(step_seconds),
    )
