"""The sentences that two systems translate most unequally, and the words in which two translations differ."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from sacrebleu.metrics.chrf import CHRF

from tandem.comparing.comparison import SentenceDifference
from tandem.comparing.test_text import TestText


class Words(NamedTuple):
    """A stretch of a translation."""

    text: str
    differs: bool
    """Whether the other translation has not these words at this place."""


def most_different(
    text: TestText, first: Sequence[str], second: Sequence[str], most: int
) -> tuple[tuple[SentenceDifference, ...], tuple[SentenceDifference, ...]]:
    """The sentences that the second translates better, and those that it translates worse, by sentence-level chrF."""
    chrf = CHRF()
    found = []
    for number, (source, reference, one, other) in enumerate(
        zip(text.sources, text.references, first, second, strict=True), 1
    ):
        if one != other:
            scores = [float(chrf.sentence_score(line, [reference]).score) for line in (one, other)]
            found.append(
                SentenceDifference(
                    number=number,
                    source=source,
                    reference=reference,
                    first=one,
                    second=other,
                    first_chrf=scores[0],
                    second_chrf=scores[1],
                )
            )
    gained = sorted((each for each in found if _gain(each) > 0), key=lambda each: -_gain(each))
    lost = sorted((each for each in found if _gain(each) < 0), key=_gain)
    return tuple(gained[:most]), tuple(lost[:most])


def marked_words(first: str, second: str) -> tuple[list[Words], list[Words]]:
    """Both translations in stretches of words that they share and words in which they differ."""
    one, other = first.split(), second.split()
    marked: tuple[list[Words], list[Words]] = ([], [])
    for kind, *ends in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in enumerate((one[ends[0] : ends[1]], other[ends[2] : ends[3]])):
            if words:
                marked[side].append(Words(" ".join(words), kind != "equal"))
    return marked


def _gain(sentence: SentenceDifference) -> float:
    return sentence.second_chrf - sentence.first_chrf
