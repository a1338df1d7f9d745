"""Tags put back into a translated sentence, around the words that the words inside them became.

Every tag comes back exactly once and elements stay nested as they were, whatever the alignment says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tandem.serving.markup.markup_parts import TagEvent, TextLine, escape_text, kept_between
from tandem.serving.placeholders import Span
from tandem.serving.word_alignment import Alignment, word_spans

# What a word inside an element's stretch counts that belongs to it, a word that does not, and a mark that does not.
_BELONGS, _FOREIGN_WORD, _FOREIGN_MARK = 1.0, -1.0, -0.5
# Attention that a word must give to an element's words to be taken for them if none gives them most of its own.
_LEAST_ATTENTION = 0.15

Aligner = Callable[[Sequence[Span], Sequence[Span]], Alignment]


@dataclass
class _Element:
    """Tags around some words of the sentence; the outermost one is the sentence itself."""

    start: int
    end: int
    opening: str = ""
    closing: str = ""
    begins_before: bool = False
    ends_after: bool = False
    children: list[_Element] = field(default_factory=list)


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence of a line, with the tags in it."""

    line: TextLine
    start: int
    end: int
    events: list[TagEvent]

    @property
    def text(self) -> str:
        return self.line.plain[self.start : self.end]

    @property
    def kept(self) -> list[Span]:
        """Elements that must stay, as places in the sentence."""
        return [
            (each.start - self.start, each.end - self.start)
            for each in kept_between(self.line.kept, self.start, self.end)
        ]


def needs_alignment(sentence: MarkedSentence) -> bool:
    """Whether a tag stands between two words of the sentence."""
    words = [word for word in word_spans(sentence.text) if sentence.text[word[0] : word[1]].strip()]
    first, last = (words[0][1], words[-1][0]) if words else (0, 0)
    return any(first <= event.offset - sentence.start <= last for event in sentence.events)


class TagPlacement:
    """A sentence and its translation, between which the tags are carried over."""

    def __init__(self, sentence: MarkedSentence, translation: str, kept: Sequence[tuple[Span, Span]]) -> None:
        self._sentence, self._translation = sentence, translation
        self._atoms: dict[Span, str] = {}
        events = list(sentence.events)
        pairs = [*kept, *self._words_that_stay(events, kept)]
        for source, target in pairs:
            inner = _inside(events, source, sentence.start)
            if inner is not None:
                start, end = source[0] + sentence.start, source[1] + sentence.start
                self._atoms[target] = sentence.line.raw(start, end, inner)
                taken = set(inner)
                events = [event for event in events if event not in taken]
        self._source = _units(sentence.text, [source for source, _ in pairs])
        self._target = _units(translation, [target for _, target in pairs])
        self._linked = {self._target.index(target): self._source.index(source) for source, target in pairs}
        self._root = _tree(events, sentence.start, sentence.end)

    def render(self, aligner: Aligner | None) -> str:
        """The translation as HTML; without an aligner no tag may stand between two words."""
        if aligner is None:
            self._weights = [[0.0] * len(self._source) for _ in self._target]
        else:
            self._weights = aligner(self._source, self._target).weights
        for target, source in self._linked.items():
            self._weights[target] = [float(number == source) for number in range(len(self._source))]
        self._best = [max(range(len(row)), key=row.__getitem__) if any(row) else None for row in self._weights]
        if not self._target:
            return _all_tags(self._root) + escape_text(self._translation)
        self._before: list[list[str]] = [[] for _ in self._target]
        self._after: list[list[str]] = [[] for _ in self._target]
        self._write()
        parts, place = [], 0
        for number, (start, end) in enumerate(self._target):
            shown = self._atoms.get((start, end)) or escape_text(self._translation[start:end])
            parts += [escape_text(self._translation[place:start]), *self._before[number], shown, *self._after[number]]
            place = end
        return "".join([*parts, escape_text(self._translation[place:])])

    def _words_that_stay(
        self, events: Sequence[TagEvent], kept: Sequence[tuple[Span, Span]]
    ) -> list[tuple[Span, Span]]:
        """Words with a tag inside them, as in H<sub>2</sub>O, that are the same word in the translation."""
        text, translation, offset = self._sentence.text, self._translation, self._sentence.start
        taken_source, taken_target = [source for source, _ in kept], [target for _, target in kept]
        words = [word for word in word_spans(text) if not _overlaps(word, taken_source)]
        others = [word for word in word_spans(translation) if not _overlaps(word, taken_target)]
        found = []
        for start, end in words:
            if not any(start < event.offset - offset < end for event in events):
                continue
            same = [other for other in others if translation[other[0] : other[1]] == text[start:end]]
            if len(same) == 1 and sum(text[a:b] == text[start:end] for a, b in words) == 1:
                found.append(((start, end), same[0]))
        return found

    def _write(self) -> None:
        """Note the tags before and after the target units; elements may be nested deeper than Python's stack is."""
        whole = (0, len(self._target))
        open_ones = [(self._root, *whole, iter(self._placed(self._root, *whole)))]
        while open_ones:
            element, first, last, children = open_ones[-1]
            if (following := next(children, None)) is None:
                self._after[last - 1].append(element.closing)
                open_ones.pop()
                continue
            child, start, end = following
            if end > start:
                self._before[start].append(child.opening)
                open_ones.append((child, start, end, iter(self._placed(child, start, end))))
            else:
                self._write_mark(child, start, first, last)

    def _write_mark(self, mark: _Element, place: int, first: int, last: int) -> None:
        """Note the tags of what has no words, at a place among the target units `first` to `last`."""
        if place == last or (place > first and not self._is_spaced(mark)):
            self._after[place - 1].append(_all_tags(mark))
            return
        self._before[place].append(_all_tags(mark))
        following = self._sentence.text[mark.start : mark.start + 1]
        if mark.end == mark.start and self._is_spaced(mark) and following.isspace():
            self._before[place].append(" ")

    def _is_spaced(self, mark: _Element) -> bool:
        """Whether a mark follows white space."""
        return mark.start == 0 or self._sentence.text[mark.start - 1].isspace()

    def _placed(self, element: _Element, first: int, last: int) -> list[tuple[_Element, int, int]]:
        """The children of an element with the target units that each gets, in the order of the translation."""
        inside = self._units_in(element)
        taken = [False] * len(self._target)
        found: dict[int, tuple[int, int]] = {}
        spoken = [number for number, child in enumerate(element.children) if self._units_in(child)]
        for number in sorted(spoken, key=lambda number: -len(self._units_in(element.children[number]))):
            child = element.children[number]
            units = self._units_in(child)
            whole = units >= inside and not any(taken)
            stretch = (first, last) if whole else self._stretch(child, units, first, last, taken)
            if stretch is not None:
                found[number] = stretch
                taken[stretch[0] : stretch[1]] = [True] * (stretch[1] - stretch[0])
        stretches = list(found.values())
        for number, child in enumerate(element.children):
            if number not in found:
                place = self._gap(child.start, first, last)
                place = next((end for start, end in stretches if start < place < end), place)
                found[number] = (place, place)
        ordered = sorted(found.items(), key=lambda each: (each[1][0], each[1][1] > each[1][0], each[0]))
        return [(element.children[number], start, end) for number, (start, end) in ordered]

    def _stretch(
        self, child: _Element, units: set[int], first: int, last: int, taken: Sequence[bool]
    ) -> tuple[int, int] | None:
        """The stretch of free target units in which the words of an element prevail; None if it has none."""
        scores = [self._score(number, units) for number in range(first, last)]
        if _BELONGS not in scores:
            given = [sum(self._weights[number][unit] for unit in units) for number in range(first, last)]
            most = max(given, default=0.0)
            if most < _LEAST_ATTENTION:
                return None
            scores[given.index(most)] = _BELONGS
        best, total, begin, stretch = 0.0, 0.0, first, None
        for place in range(first, last):
            if taken[place] or (total <= 0 and not child.begins_before):
                if taken[place] and child.begins_before:
                    break
                total, begin = 0.0, place + 1 if taken[place] else place
            if not taken[place]:
                total += scores[place - first]
                if total > best and (place + 1 == last or not child.ends_after):
                    best, stretch = total, (begin, place + 1)
        return stretch

    def _score(self, number: int, units: set[int]) -> float:
        if self._best[number] in units:
            return _BELONGS
        start, end = self._target[number]
        return _FOREIGN_WORD if any(map(str.isalnum, self._translation[start:end])) else _FOREIGN_MARK

    def _units_in(self, element: _Element) -> set[int]:
        """The source units that an element touches."""
        return {
            number for number, (start, end) in enumerate(self._source) if start < element.end and element.start < end
        }

    def _gap(self, offset: int, first: int, last: int) -> int:
        """The target unit before which a mark belongs that stands at a place of the source."""
        after = next((number for number, unit in enumerate(self._source) if unit[0] >= offset), None)
        before = next((number for number, unit in reversed(list(enumerate(self._source))) if unit[1] <= offset), None)
        if before is None:
            return first
        if after is None:
            return last
        following = [number for number in range(first, last) if self._best[number] == after]
        preceding = [number for number in range(first, last) if self._best[number] == before]
        if following:
            return following[0]
        if preceding:
            return preceding[-1] + 1
        return min(last, max(first, round(len(self._target) * after / len(self._source))))


def _inside(events: Sequence[TagEvent], span: Span, offset: int) -> list[TagEvent] | None:
    """The tags inside a word that stay inside it; None if an element there reaches beyond the word."""
    start, end = span[0] + offset, span[1] + offset
    places: dict[int, list[int]] = {}
    for event in events:
        places.setdefault(event.pair, []).append(event.offset)
    inner = []
    for event in events:
        if event.kind == "mark":
            if start < event.offset < end:
                inner.append(event)
            continue
        both = places[event.pair]
        within = len(both) == 2 and start <= min(both) and max(both) <= end
        if within and both != [start, end]:
            inner.append(event)
        elif not within and start < event.offset < end:
            return None
    return inner


def _units(text: str, atoms: Sequence[Span]) -> list[Span]:
    """The words and marks of a text, and what stays as a whole."""
    return sorted([*(word for word in word_spans(text) if not _overlaps(word, atoms)), *atoms])


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _tree(events: Sequence[TagEvent], start: int, end: int) -> _Element:
    """The elements of a sentence, nested; those of which one tag lies outside reach to its edge."""
    length = end - start
    opened_here = {event.pair for event in events if event.kind == "open"}
    root = _Element(0, length)
    stack = [root]
    # Elements that began before: the one that ends last is the outermost.
    for event in reversed([each for each in events if each.kind == "close" and each.pair not in opened_here]):
        element = _Element(0, event.offset - start, closing=event.raw, begins_before=True)
        stack[-1].children.append(element)
        stack.append(element)
    for event in events:
        place = event.offset - start
        if event.kind == "mark":
            stack[-1].children.append(_Element(place, place, opening=event.raw))
        elif event.kind == "open":
            element = _Element(place, length, opening=event.raw, ends_after=True)
            stack[-1].children.append(element)
            stack.append(element)
        else:
            element = stack.pop()
            element.end, element.closing, element.ends_after = place, event.raw, False
    return root


def _all_tags(element: _Element) -> str:
    """The tags of an element and those in it, without any text."""
    tags: list[str] = []
    pending: list[str | _Element] = [element]
    while pending:
        following = pending.pop()
        if isinstance(following, str):
            tags.append(following)
        else:
            tags.append(following.opening)
            pending += [following.closing, *reversed(following.children)]
    return "".join(tags)
