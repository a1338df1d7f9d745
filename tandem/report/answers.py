"""What a report consists of: answers with their evidence, and charts. Page, Markdown and JSON are made from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tandem.report.record import Curve

Confidence = Literal["high", "medium", "low", "none"]
"""`none` goes with verdicts such as `unknown`: there is not enough evidence."""

Evidence = dict[str, Any]
"""Numbers (and short strings or lists of them) by name, ready for JSON; names carry their units."""


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
class Trace:
    """One line, or one layer of a stack."""

    name: str
    curve: Curve
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Something to look at; all charts share the step axis."""

    id: str
    title: str
    y_label: str
    traces: tuple[Trace, ...]
    stacked: bool = False
    note: str = ""
    """What to see in it, in a sentence."""
    marks: tuple[tuple[float, str], ...] = ()
    """Steps worth a vertical line, with a word."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run, explained."""

    path: str
    source: str
    state: str
    axis: str
    """`step` or `epoch`: what the charts' common axis counts."""
    version: str
    """Of Tandem."""
    made: str
    """When, in ISO form."""
    summary: tuple[str, ...]
    """Four lines."""
    questions: tuple[Answer, ...]
    problems: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the charts, whose data is in the run itself."""
        return {
            "path": self.path,
            "source": self.source,
            "state": self.state,
            "version": self.version,
            "made": self.made,
            "summary": list(self.summary),
            "questions": [_finite(asdict(answer)) for answer in self.questions],
            "problems": list(self.problems),
        }


def _finite(value: Any) -> Any:
    """What is not finite has no place in JSON."""
    if isinstance(value, dict):
        return {key: _finite(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(content) for content in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
