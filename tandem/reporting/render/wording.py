"""The words around an answer that all renderings share: short names, tones of verdicts, confidence."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from tandem.reporting.answers import Answer, Report
from tandem.reporting.questions.question_texts import question_texts

Tone = Literal["good", "attention", "neutral"]

CONFIDENCE = {
    "high": "high confidence",
    "medium": "medium confidence",
    "low": "low confidence",
    "none": "not enough evidence",
}
GOOD = {"finished", "converged", "overfitting:no", "fully_used", "not_bottleneck", "as_configured"}
"""Verdicts by their word, or by question and word where the word alone may be either."""
ATTENTION = {
    "crashed", "diverged", "degenerate", "overfitting:yes", "under_used", "shared", "bottleneck", "not_as_configured",
}  # fmt: skip


def short_name(answer: Answer) -> str:
    return question_texts()[answer.id].name


def tone(*words: str) -> Tone:
    """The tone of a verdict: good, asks for attention, or neutral."""
    return "good" if GOOD.intersection(words) else "attention" if ATTENTION.intersection(words) else "neutral"


def tone_of(answer: Answer) -> Tone:
    return tone(answer.verdict, f"{answer.id}:{answer.verdict}")


def verdict(answer: Answer) -> str:
    return answer.verdict.replace("_", " ")


def run_name(report: Report) -> str:
    """The end of the run's path: what people call it. Many runs are called `run`: their directory tells them apart."""
    path = PurePath(report.path)
    return "/".join(path.parts[-2:] if path.name == "run" else path.parts[-1:]) or report.path


def state(report: Report) -> str:
    return "state unknown" if report.state == "unknown" else report.state


def made_by(version: str, made: str) -> str:
    """Who made a page, and when, to the minute."""
    return f"Made by Tandem {version}, {made.replace('T', ' ')[:16]}."
