"""Which words of a translation belong to which of its source, by the decoder's attention."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.corpus.tokenizer import SPACE_MARK
from tandem.serving.placeholders import Span
from tandem.serving.served_models import ServedModel

# A word, with what holds its parts together; or a single mark.
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*|[^\w\s]")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# A word belongs to every word that gets this share of the most attention that it gives to one.
_SHARE = 0.5


@dataclass(frozen=True)
class Alignment:
    """Words as character ranges, and for every word of the translation how much it looks at each of the source."""

    source: Sequence[Span]
    target: Sequence[Span]
    weights: list[list[float]]

    def links(self) -> list[tuple[int, int]]:
        """Pairs of a source word and a target word that belong together."""
        found = []
        for j, row in enumerate(self.weights):
            most = max(row, default=0.0)
            found += [(i, j) for i, weight in enumerate(row) if most > 0 and weight >= _SHARE * most]
        return sorted(found)


def align(
    model: ServedModel,
    source: str,
    translation: str,
    source_words: Sequence[Span] | None = None,
    target_words: Sequence[Span] | None = None,
) -> Alignment:
    """Align a sentence and its translation, which may be any text that the model can hold; words may be given."""
    source_words = word_spans(source) if source_words is None else source_words
    target_words = word_spans(translation) if target_words is None else target_words
    source_ids, target_ids = model.encode([source, translation])
    weights = [[0.0] * len(source_words) for _ in target_words]
    if source_ids and target_ids:
        columns = _words_of(piece_spans(model.pieces, source_ids, source), source_words)
        rows = _words_of(piece_spans(model.pieces, target_ids, translation), target_words)
        for j, row in zip(rows, model.engine.attention(source_ids, target_ids), strict=False):
            for i, weight in zip(columns, row, strict=False):
                if i is not None and j is not None:
                    weights[j][i] += weight
    return Alignment(source_words, target_words, weights)


def word_spans(text: str) -> list[Span]:
    """Where the words and marks of a text begin and end."""
    return [found.span() for found in _WORD.finditer(text)]


def piece_spans(pieces: Sequence[str], ids: Sequence[int], text: str) -> list[Span]:
    """The characters that each piece of a text stands for; one that is spelt in bytes belongs to all of them."""
    spans, place, rest = [], 0, 0
    for number in ids:
        piece = pieces[number]
        if _BYTE.fullmatch(piece):
            if rest == 0:
                place = _after_space(text, place)
                rest = len(text[place : place + 1].encode())
            spans.append((place, place + 1))
            rest -= 1
            place += 0 if rest > 0 else 1
            continue
        if piece.startswith(SPACE_MARK):
            place = _after_space(text, place)
        end = min(len(text), place + len(piece.replace(SPACE_MARK, "")))
        spans.append((place, end))
        place = end
    return spans


def utf16_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """The same ranges counted in UTF-16 code units, as JavaScript counts."""
    units = [0]
    for character in text:
        units.append(units[-1] + (2 if ord(character) > 0xFFFF else 1))
    return [(units[start], units[end]) for start, end in spans]


def _after_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _words_of(pieces: Sequence[Span], words: Sequence[Span]) -> list[int | None]:
    """For every piece the word that its last character lies in; none for one of white space."""
    place, found = 0, []
    for _, end in pieces:
        while place < len(words) and words[place][1] < end:
            place += 1
        inside = place < len(words) and words[place][0] < end
        found.append(place if inside else None)
    return found
