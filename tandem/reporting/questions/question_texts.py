"""The texts of the eleven questions, from questions.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml


@dataclass(frozen=True, kw_only=True)
class QuestionText:
    """One question, its name in lists, an explanation, and the ids of the charts that show its evidence."""

    question: str
    name: str
    explanation: str
    charts: list[str]


@cache
def question_texts() -> dict[str, QuestionText]:
    """The texts by the questions' ids, in the order in which they are asked."""
    text = files("tandem.reporting.questions").joinpath("questions.yaml").read_text(encoding="utf-8")
    return {id: QuestionText(**fields) for id, fields in yaml.safe_load(text).items()}
