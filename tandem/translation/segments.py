"""Text cut into sentences that a model can translate, and put together again with the same white space."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sentencex import segment as sentences_of

# Where a sentence that is too long is cut, the best place first: after a mark between clauses, between words.
_CUTS = (re.compile(r"(?<=[;:,\u2013\u2014\uff0c\u3001])\s*"), re.compile(r"\s+"))
_EDGES = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """A stretch of text to translate, without white space around it, and the white space that follows it."""

    text: str
    """May be empty, for white space at the beginning."""
    space: str


def split_sentences(text: str, language: str) -> list[Segment]:
    """The sentences of a text, in order; text and space of all of them make up the whole text."""
    return [segment for part in sentences_of(language, text) for segment in _segments(part)]


def split_long(segment: Segment, fits: Callable[[str], bool]) -> Iterator[Segment]:
    """Cut a sentence that does not fit: between clauses, else between words, else between characters."""
    text = segment.text
    while not fits(text):
        cut = _last_cut(text, fits)
        head = text[:cut].rstrip()
        yield Segment(head, text[len(head) : cut])
        text = text[cut:]
    yield Segment(text, segment.space)


def _segments(part: str) -> Iterator[Segment]:
    found = _EDGES.fullmatch(part)
    assert found is not None, "matches every text"
    before, text, after = found.groups()
    if before:
        yield Segment("", before)
    if text:
        yield Segment(text, after)


def _last_cut(text: str, fits: Callable[[str], bool]) -> int:
    """The end of the longest beginning that fits; at least one character, whether or not that fits."""
    for pattern in _CUTS:
        ends = [found.end() for found in pattern.finditer(text) if 0 < found.end() < len(text)]
        if (last := _last_fitting(text, ends, fits)) is not None:
            return last
    return _last_fitting(text, list(range(1, len(text))), fits) or 1


def _last_fitting(text: str, ends: list[int], fits: Callable[[str], bool]) -> int | None:
    """The last of these ends, in ascending order, up to which the text fits; None if it fits up to none of them."""
    low, high = 0, len(ends)
    while low < high:  # a longer beginning has no fewer pieces, give or take one: close enough to search by halves
        middle = (low + high) // 2
        if fits(text[: ends[middle]].rstrip()):
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else None
