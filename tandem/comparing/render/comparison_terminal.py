"""A comparison as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tandem.comparing.comparison import Comparison, Contrast, SentenceDifference
from tandem.comparing.render.tables import (
    Table,
    all_signatures,
    p_values_table,
    scores_table,
    seeds_table,
    settings_table,
    text_words,
    title,
)
from tandem.comparing.sentence_differences import Words, marked_words
from tandem.reporting.render.terminal import NARROWEST, wrapped

SHOWN = 2
"""Sentences shown for each direction; the page has more."""
INDENT = "  "


def render_comparison_text(comparison: Comparison, width: int) -> str:
    """Verdicts first, then scores, seeds, differing settings, remarks, and the most unequal sentences."""
    pieces = [wrapped(_verdicts(comparison), width)]
    tables = [("Scores", scores_table(comparison)), ("Over seeds: mean ± standard deviation", seeds_table(comparison))]
    pieces += [_section(name, _aligned(table)) for name, table in tables if table is not None]
    pieces += [_section(f"{_pair(each)}: tests", _aligned(p_values_table(each))) for each in comparison.contrasts]
    pieces.append(_section("Signatures", _signatures(comparison)))
    if settings := settings_table(comparison):
        pieces.append(_differing(settings, width))
    if comparison.remarks:
        pieces.append("To keep in mind\n" + wrapped(((INDENT, remark) for remark in comparison.remarks), width))
    for contrast in comparison.contrasts:
        if contrast.gained or contrast.lost:
            pieces.append(wrapped(_sentences(contrast), width))
    return "\n".join(pieces)


def _verdicts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    yield "", f"{title(comparison)}, {text_words(comparison)}"
    for contrast in comparison.contrasts:
        yield INDENT, contrast.headline
        yield from ((2 * INDENT, words) for words in contrast.words)


def _section(name: str, lines: Iterator[str]) -> str:
    return "\n".join([name, *lines]) + "\n"


def _differing(settings: Table, width: int) -> str:
    """Settings side by side if the terminal is wide enough, else a paragraph each, with who has which value."""
    lines = [*_aligned(settings)]
    if max(map(len, lines)) <= max(width, NARROWEST):
        return _section("What differs", iter(lines))
    return "What differs\n" + wrapped(((INDENT, _holders(settings.header[1:], row)) for row in settings.rows), width)


def _holders(names: Sequence[str], row: Sequence[str]) -> str:
    key, *values = row
    holders = {value: [name for name, its in zip(names, values, strict=True) if its == value] for value in values}
    return f"{key}: " + "; ".join(f"{value} ({', '.join(having)})" for value, having in holders.items())


def _aligned(table: Table) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    for row in (table.header, *table.rows):
        first, *cells = row
        aligned = [
            f"{cell:{'>' if table.numbers else '<'}{width}}" for cell, width in zip(cells, widths[1:], strict=True)
        ]
        yield INDENT + "  ".join([f"{first:<{widths[0]}}", *aligned]).rstrip()


def _signatures(comparison: Comparison) -> Iterator[str]:
    signatures = all_signatures(comparison)
    width = max(map(len, signatures))
    for what, signature in signatures.items():
        yield f"{INDENT}{what:<{width}}  {signature}"


def _sentences(contrast: Contrast) -> Iterator[tuple[str, str]]:
    yield "", f"{_pair(contrast)}: where they differ most, by chrF; [words] that differ"
    for direction, sentences in (("better", contrast.gained), ("worse", contrast.lost)):
        for sentence in sentences[:SHOWN]:
            yield from _sentence(contrast, sentence, direction)


def _sentence(contrast: Contrast, sentence: SentenceDifference, direction: str) -> Iterator[tuple[str, str]]:
    first, second = marked_words(sentence.first, sentence.second)
    yield INDENT, f"line {sentence.number:,}, {contrast.second.name} {direction}"
    yield 2 * INDENT, f"source: {sentence.source}"
    yield 2 * INDENT, f"reference: {sentence.reference}"
    yield 2 * INDENT, f"{contrast.first.members[0]} ({sentence.first_chrf:.1f}): {_marked(first)}"
    yield 2 * INDENT, f"{contrast.second.members[0]} ({sentence.second_chrf:.1f}): {_marked(second)}"


def _marked(words: list[Words]) -> str:
    return " ".join(f"[{each.text}]" if each.differs else each.text for each in words)


def _pair(contrast: Contrast) -> str:
    return f"{contrast.second.name} against {contrast.first.name}"
