"""HTML cut into what stays as it is and lines of text with the tags inside them; all parts make up the source again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from tandem.serving.markup.markup_tokens import MarkupToken, markup_tokens, unescape_text
from tandem.serving.placeholders import Span

# Elements inside a line of text; every other tag ends the line.
_INLINE = frozenset(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math nobr output picture q s
    samp small span strike strong sub sup svg time tt u var wbr""".split()  # noqa: SIM905 (a list of words)
)
# An element that stays, such as a name, helps the model as part of the sentence if it is short and like a word or two.
_LONGEST_NAME = 60
_NO_NAME = re.compile(r"[.!?;:]\s|^\s|\s$|[\n\t]|^\W*$")
_BREAKS = re.compile(r"[\t\n\f\r]")


@dataclass(frozen=True)
class TagEvent:
    """A tag inside a line, before the character at `offset`."""

    offset: int
    kind: Literal["open", "close", "mark"]
    """A mark stands alone: a comment, an image, a tag whose partner is missing."""
    raw: str
    pair: int = -1
    """The same for the two tags of an element."""


@dataclass(frozen=True)
class KeptElement:
    """An element that must not be translated; its text is part of the line's."""

    start: int
    end: int
    raw: str


@dataclass
class TextLine:
    """Text that a browser shows as one paragraph or line, without its tags, and the tags in it."""

    text: str = ""
    events: list[TagEvent] = field(default_factory=list)
    kept: list[KeptElement] = field(default_factory=list)
    plain: str = ""
    """The text as a browser shows it, line breaks of the source as spaces; of the same length."""

    def raw(self, start: int, end: int, events: Sequence[TagEvent]) -> str:
        """A stretch of the line as HTML, with some of its tags."""
        inserted: dict[int, list[str]] = {}
        for event in events:
            inserted.setdefault(event.offset, []).append(event.raw)
        kept = {each.start: each for each in kept_between(self.kept, start, end)}
        parts, place = [], start
        for stop in sorted({end, *kept, *inserted}):
            parts += [escape_text(self.text[place:stop]), *inserted.get(stop, ())]
            place = max(place, stop)
            if stop in kept:
                parts.append(kept[stop].raw)
                place = kept[stop].end
        return "".join(parts)


def kept_between(kept: Sequence[KeptElement], start: int, end: int) -> Sequence[KeptElement]:
    """Those of the elements, which are in order, that lie in a stretch."""
    first = bisect_left(kept, start, key=lambda each: each.start)
    last = bisect_right(kept, end, key=lambda each: each.end)
    return kept[first : max(first, last)]


def kept_around(kept: Sequence[KeptElement], place: int) -> Sequence[KeptElement]:
    """The element, if there is one, that a place lies inside of."""
    number = bisect_left(kept, place, key=lambda each: each.start) - 1
    return [kept[number]] if number >= 0 and place < kept[number].end else []


def parse_markup(markup: str) -> list[str | TextLine]:
    """The parts of a piece of HTML: what stays as it is, and lines of text."""
    parts: list[str | TextLine] = []
    tokens = list(markup_tokens(markup))
    line: list[_Item] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        end = _end_of_element(tokens, place) if token.stays else place + 1
        if token.kind in ("text", "other") or token.name in _INLINE:
            line.append(_kept(tokens[place:end]) if token.stays else token)
        else:
            parts += [_line(line), "".join(each.raw for each in tokens[place:end])]
            line = []
        place = end
    return [*parts, _line(line)]


def escape_text(text: str) -> str:
    """Text as it stands in HTML; a space that does not break is spelt out, as people do."""
    return escape(text, quote=False).replace("\N{NO-BREAK SPACE}", "&nbsp;")


@dataclass(frozen=True)
class _Kept:
    """An element that must not be translated, and what it shows; part of the sentence if it is like a name."""

    raw: str
    text: str


_Item = MarkupToken | _Kept


def _end_of_element(tokens: Sequence[MarkupToken], place: int) -> int:
    """The place after the end tag of an element; the end of all if it is missing, as in a browser."""
    name, depth = tokens[place].name, 0
    for number in range(place, len(tokens)):
        token = tokens[number]
        if token.name == name:
            depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if depth == 0:
            return number + 1
    return len(tokens)


def _kept(tokens: Sequence[MarkupToken]) -> _Item:
    text = unescape_text("".join(token.raw for token in tokens if token.kind == "text"))
    raw = "".join(token.raw for token in tokens)
    is_name = len(text) <= _LONGEST_NAME and not _NO_NAME.search(text)
    return _Kept(raw, text) if is_name else MarkupToken("other", raw)


def _line(items: Sequence[_Item]) -> str | TextLine:
    """A line of text; what has nothing to translate in it stays as it is."""
    if not any(isinstance(item, MarkupToken) and _is_spoken(item) for item in items):
        return "".join(item.raw for item in items)
    pairs, line = _pairs(items), TextLine()
    texts: list[str] = []
    length = number = 0
    while number < len(items):
        item, partner = items[number], pairs.get(number)
        if isinstance(item, _Kept) or item.kind == "text":
            text = item.text if isinstance(item, _Kept) else unescape_text(item.raw)
            if isinstance(item, _Kept):
                line.kept.append(KeptElement(length, length + len(text), item.raw))
            texts.append(text)
            length += len(text)
        elif partner is None:
            line.events.append(TagEvent(length, "mark", item.raw))
        elif partner == number + 1:  # an element without text is a mark, too
            line.events.append(TagEvent(length, "mark", item.raw + items[partner].raw))
            number = partner
        else:
            kind: Literal["open", "close"] = "open" if partner > number else "close"
            line.events.append(TagEvent(length, kind, item.raw, min(number, partner)))
        number += 1
    line.text = "".join(texts)
    line.plain = _BREAKS.sub(" ", line.text)
    return line


def _is_spoken(token: MarkupToken) -> bool:
    return token.kind == "text" and re.search(r"\w", unescape_text(token.raw)) is not None


def _pairs(items: Sequence[_Item]) -> dict[int, int]:
    """Places of opening and closing tags that belong together, both ways; crossed ones belong to nobody."""
    found: dict[int, int] = {}
    opened: list[tuple[int, str]] = []
    count: Counter[str] = Counter()
    for number, item in enumerate(items):
        if isinstance(item, _Kept):
            continue
        if item.kind == "open":
            opened.append((number, item.name))
            count[item.name] += 1
        elif item.kind == "close" and count[item.name]:
            name = ""
            while name != item.name:
                partner, name = opened.pop()
                count[name] -= 1
            found |= {partner: number, number: partner}
    return found


def split_line(line: TextLine, sentences: Sequence[Span]) -> Iterator[tuple[Span, list[TagEvent], bool]]:
    """A line cut into its sentences and what lies between them, each with its tags; True marks a sentence.

    A tag between two sentences belongs to neither. Their order stays what it was.
    """
    regions: list[tuple[Span, bool]] = []
    place = 0
    for start, end in sentences:
        regions += [((place, start), False), ((start, end), True)]
        place = end
    regions.append(((place, len(line.text)), False))
    dealt: list[list[TagEvent]] = [[] for _ in regions]
    current = 0
    for event in line.events:
        while current + 1 < len(regions) and not _holds(*regions[current], event):
            current += 1
        dealt[current].append(event)
    for (span, is_sentence), events in zip(regions, dealt, strict=True):
        yield span, events, is_sentence


def _holds(span: Span, is_sentence: bool, event: TagEvent) -> bool:
    """Whether a tag belongs to a region, or to a later one."""
    start, end = span
    if event.offset != end:
        return event.offset < end
    if is_sentence:
        return event.kind != "open"
    # At the end of what lies between, before the first word of a sentence: only an end tag looks back.
    return event.kind == "close" and end > start
