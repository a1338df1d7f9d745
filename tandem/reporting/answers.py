"""The report object: answers with their evidence, and charts. HTML, Markdown and JSON are rendered from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Literal, NamedTuple

from tandem.reporting.run_record import Curve

Confidence = Literal["high", "medium", "low", "none"]
"""`none` goes with verdicts such as `unknown`: there is not enough evidence."""

Evidence = dict[str, Any]
"""Numbers (and short strings or lists of them) by name, ready for JSON; names carry their units."""


class Judgement(NamedTuple):
    """A verdict on a run, how sure it is, and why."""

    verdict: str
    confidence: Confidence
    because: str


NO_TRAINING_HERE = "the journal holds none of the training"
"""What is said of a run whose steps are all from before its data."""


class Reply(NamedTuple):
    """What answers one of the questions; evidence that is None is not known and left out."""

    verdict: str
    confidence: Confidence
    answer: str
    evidence: Evidence


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One of the eleven questions, answered."""

    id: str
    question: str
    verdict: str
    confidence: Confidence
    answer: str
    """One sentence."""
    evidence: Evidence
    explanation: str
    """A sentence or two for somebody who learns: how one can tell, and what misleads."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One line of the table of evaluations; None is what the run does not have."""

    at: float
    """Step or epoch."""
    loss: float | None
    perplexity: float | None
    bleu: float | None
    bleu_first_sentences: int | None
    """How many of the first sentences BLEU is of, where that is not all."""
    best: tuple[str, ...]
    """In what it is the best of all: `lowest loss`, `best BLEU`."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One line of a chart, or one layer of a stack."""

    name: str
    curve: Curve
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart; all charts of a report share the step axis."""

    id: str
    title: str
    y_label: str
    traces: tuple[Trace, ...]
    stacked: bool = False
    note: str = ""
    """What the chart shows, in a sentence."""
    marks: tuple[tuple[float, str], ...] = ()
    """Steps that get a vertical line, with its label."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report on a run."""

    path: str
    source: str
    state: str
    axis: str
    """`step` or `epoch`: what the charts' common axis counts."""
    version: str
    """Tandem's own."""
    made: str
    """Date and time in ISO form."""
    summary: tuple[str, ...]
    questions: tuple[Answer, ...]
    problems: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = field(default=(), repr=False)
    evaluations: tuple[Evaluation, ...] = field(default=(), repr=False)
    bleu_note: str = ""
    """How BLEU was computed: its signature, or what makes it incomparable."""

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON, without the charts, whose data is in the run itself."""
        names = (
            "path",
            "source",
            "state",
            "version",
            "made",
            "summary",
            "questions",
            "problems",
            "bleu_note",
            "evaluations",
        )
        return {name: for_json(getattr(self, name)) for name in names}


def for_json(value: Any) -> Any:
    """A value for JSON, which has no place for what is not finite; dataclasses become objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return for_json(asdict(value))
    if isinstance(value, dict):
        return {key: for_json(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(content) for content in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
