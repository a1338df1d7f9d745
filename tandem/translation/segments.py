"""Text cut into sentences that a model can translate, and put together again with the same white space."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sentencex import segment as sentences_of

# Where a sentence that is too long is cut, the best place first: after a mark between clauses, between words.
_CUTS = (re.compile(r"(?<=[;:,\u2013\u2014\uff0c\u3001])\s*"), re.compile(r"\s+"))
# A line with the breaks after it. No sentence goes on after one: text in lines keeps its lines.
_LINE = re.compile(r"[^\n\r\v\f\u0085\u2028\u2029]*[\n\r\v\f\u0085\u2028\u2029]+|[^\n\r\v\f\u0085\u2028\u2029]+")
# White space of several bytes, on which sentencex 1.0 fails.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")


@dataclass(frozen=True)
class Segment:
    """A stretch of text to translate, without white space around it, and the white space that follows it."""

    text: str
    """May be empty, for white space at the beginning."""
    space: str


def split_sentences(text: str, language: str) -> list[Segment]:
    """The sentences of a text, line by line; text and space of all of them make up the whole text."""
    lines = _LINE.findall(text)
    return [segment for line in lines for part in _sentences(line, language) for segment in _segments(part)]


def split_long(segment: Segment, fits: Callable[[str], bool]) -> Iterator[Segment]:
    """Cut a sentence that does not fit: between clauses, else between words, else between characters."""
    text = segment.text
    while (beginning := _beginning(text, fits)) != text or not fits(text):
        cut = _last_cut(beginning, fits)
        head = text[:cut].rstrip()
        yield Segment(head, text[len(head) : cut])
        text = text[cut:]
    yield Segment(text, segment.space)


def _sentences(line: str, language: str) -> Iterator[str]:
    """The sentences of a line with the white space between them; all of them make up the line."""
    narrow = _WIDE_SPACE.sub(" ", line).rstrip()
    parts = sentences_of(language, narrow)
    if "".join(parts) != narrow:  # sentencex 1.0 loses white space in long texts: rather one long sentence
        parts = [narrow]
    place = 0
    for part in parts[:-1]:
        yield line[place : place + len(part)]
        place += len(part)
    yield line[place:]


def _beginning(text: str, fits: Callable[[str], bool]) -> str:
    """A beginning that is too long, but by less than its half: all of a very long text need not be looked at."""
    length = 64
    while length < len(text) and fits(text[:length]):
        length *= 2
    return text[:length]


def _segments(part: str) -> Iterator[Segment]:
    rest = part.lstrip()
    if len(rest) < len(part):
        yield Segment("", part[: len(part) - len(rest)])
    if text := rest.rstrip():
        yield Segment(text, rest[len(text) :])


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
