"""HTML through the queue of sentences: tags, attributes, entities and comments survive."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from tandem.serving.markup.markup_parts import TextLine, kept_around, parse_markup, split_line
from tandem.serving.markup.tag_placement import MarkedSentence, TagPlacement, needs_alignment
from tandem.serving.placeholders import Span
from tandem.serving.served_models import ServedModel
from tandem.serving.text_translation import LONG_TEXT, SentenceTranslation, TextTranslation, TranslatedText, versions
from tandem.serving.word_alignment import align

# Tags in a sentence that are carried over by the words they stand at. Text with more is translated from tag to tag.
MOST_TAGS = 100
# Sentences of a request whose tags are placed at the same time: others need threads, too.
_AT_ONCE = 4


async def translate_markup(markup: str, translation: TextTranslation, alternatives: int = 0) -> TranslatedText:
    """A piece of HTML, and so many other translations of it, or fewer."""
    if len(markup) < LONG_TEXT:
        parts = split_markup(markup, translation.model)
    else:
        parts = await asyncio.to_thread(split_markup, markup, translation.model)
    sentences = [part for part in parts if isinstance(part, MarkedSentence)]
    found = await translation.sentences(
        [sentence.text for sentence in sentences], [sentence.kept for sentence in sentences], alternatives + 1
    )
    chosen = [list(enumerate(version)) for version in versions(found, alternatives)]
    candidates = [{candidate.text: candidate for candidate in each} for each in found]
    wanted = list(dict.fromkeys(each for version in chosen for each in version))
    at_once = asyncio.Semaphore(_AT_ONCE)
    texts = await asyncio.gather(
        *(_rendered(sentences[place], candidates[place][text], translation.model, at_once) for place, text in wanted)
    )
    rendered = dict(zip(wanted, texts, strict=True))
    best, *others = (_joined(parts, [rendered[each] for each in version]) for version in chosen)
    return TranslatedText(best, others)


def split_markup(markup: str, model: ServedModel) -> list[str | MarkedSentence]:
    """A piece of HTML as sentences to translate and what lies between them."""
    parts: list[str | MarkedSentence] = []
    for part in parse_markup(markup):
        if isinstance(part, str):
            parts.append(part)
            continue
        for (start, end), events, is_sentence in split_line(part, list(_sentences(part, model))):
            if is_sentence:
                parts.append(MarkedSentence(part, start, end, events))
            else:
                parts.append(part.raw(start, end, events))
    return parts


def _sentences(line: TextLine, model: ServedModel) -> Iterator[Span]:
    """Where the sentences of a line begin and end; an element that must stay is never cut."""
    offsets = [event.offset for event in line.events]
    place = 0
    for segment in model.split(line.plain):
        start, end = place, place + len(segment.text)
        place = end + len(segment.space)
        for kept in kept_around(line.kept, start):
            start = min(end, kept.end)
        for kept in kept_around(line.kept, end):
            end = max(start, kept.start)
        inside = offsets[bisect_left(offsets, start) : bisect_right(offsets, end)]
        stops = [start, *dict.fromkeys(inside), end] if len(inside) > MOST_TAGS else [start, end]
        for first, last in pairwise(stops):
            text = line.plain[first:last]
            if text.strip():
                yield first + len(text) - len(text.lstrip()), last - len(text) + len(text.rstrip())


async def _rendered(
    sentence: MarkedSentence, candidate: SentenceTranslation, model: ServedModel, at_once: asyncio.Semaphore
) -> str:
    """A translation with its tags."""
    placement = TagPlacement(sentence, candidate.text, candidate.kept)
    if needs_alignment(sentence):
        aligner = partial(align, model, sentence.text, candidate.text)
    elif len(sentence.events) <= MOST_TAGS:
        return placement.render(None)
    else:
        aligner = None
    async with at_once:
        return await asyncio.to_thread(placement.render, aligner)


def _joined(parts: Sequence[str | MarkedSentence], version: Sequence[str]) -> str:
    translated = iter(version)
    return "".join(part if isinstance(part, str) else next(translated) for part in parts)
