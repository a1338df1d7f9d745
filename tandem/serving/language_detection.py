"""The language of a text, among those that the server translates from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.corpus.prepare.language_id import language_probabilities

# The beginning of a text decides as well as all of it.
_MOST_CHARACTERS = 1_000


@dataclass(frozen=True)
class DetectedLanguage:
    """A language and how sure it is, from 0 to 100."""

    language: str
    confidence: float

    def as_dict(self) -> dict[str, object]:
        return {"language": self.language, "confidence": self.confidence}


def can_detect() -> bool:
    """Whether languages can be told apart here."""
    return language_probabilities("a") is not None


def detect_language(text: str, languages: Sequence[str]) -> list[DetectedLanguage]:
    """The languages that a text may be in, the likeliest first.

    The confidence is the probability among all languages of the world that the library knows, not only among those
    here: a French text is English with a confidence of 0 although English may be the only choice. Without the library
    nothing is known, and the confidence is 0.
    """
    known = language_probabilities(text[:_MOST_CHARACTERS]) or {}
    found = [
        DetectedLanguage(language, round(100 * known.get(re.split("[-_]", language)[0].lower(), 0.0), 1))
        for language in languages
    ]
    return sorted(found, key=lambda each: -each.confidence)
