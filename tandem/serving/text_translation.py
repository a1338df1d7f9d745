"""A text through the queue of sentences: split, translated, put together with the white space it had."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from tandem.serving.placeholders import SentencePart, Span, find_placeholders, is_kept, locate, stretches
from tandem.serving.request_batches import SentenceBatches
from tandem.serving.served_models import ServedModel
from tandem.translation.engine import Hypothesis
from tandem.translation.repetition import without_loop
from tandem.translation.segments import Segment

# Texts longer than this are split and encoded by another thread, so that nobody waits for it.
LONG_TEXT = 1_000
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class SentenceTranslation:
    """A translation of a sentence."""

    text: str
    loss: float
    """How much worse it is than the best one, by the search's score."""
    kept: Sequence[tuple[Span, Span]] = ()
    """Where each placeholder and whatever else must stay is in the source, and where here."""


@dataclass(frozen=True)
class TranslatedText:
    """The translation of a text, and others of it."""

    text: str
    alternatives: list[str]


class TextTranslation:
    """Translates texts of one request with one model."""

    def __init__(self, model: ServedModel, batches: SentenceBatches, places: Iterator[int] | None = None) -> None:
        """`places` counts the sentences of the request, if it has more texts than those translated here."""
        self.model, self._batches = model, batches
        self._places = places or itertools.count()

    async def translate(self, text: str, alternatives: int = 0) -> TranslatedText:
        """A text, and so many other translations of it, or fewer."""
        segments = await self.split(text)
        found = await self.sentences([segment.text for segment in segments], count=alternatives + 1)
        best, *others = (
            "".join(text + segment.space for text, segment in zip(version, segments, strict=True))
            for version in versions(found, alternatives)
        )
        return TranslatedText(best, others)

    async def stream(self, text: str) -> AsyncIterator[tuple[Segment, str]]:
        """The sentences of a text with their translations, in order, each as soon as it is done."""
        segments = await self.split(text)
        pending = await self._submit([segment.text for segment in segments], None, 1)
        try:
            for segment, sentence in zip(segments, pending, strict=True):
                [[best]] = await self._finish([sentence])
                yield segment, best.text
        finally:
            _cancel(pending)

    async def split(self, text: str) -> list[Segment]:
        """The sentences of a text."""
        return await _aside(len(text), self.model.split, text)

    async def sentences(
        self, sentences: Sequence[str], kept: Sequence[Sequence[Span]] | None = None, count: int = 1
    ) -> list[list[SentenceTranslation]]:
        """Translations of each sentence, the best first; `kept` are the spans that must stay, beside placeholders."""
        pending = await self._submit(sentences, kept, count)
        try:
            return await self._finish(pending)
        finally:
            _cancel(pending)

    async def _submit(
        self, sentences: Sequence[str], kept: Sequence[Sequence[Span]] | None, count: int
    ) -> list[_PendingSentence]:
        """Put into the queue what has something to translate in it."""
        pending = await _aside(sum(map(len, sentences)), self._prepare, sentences, kept)
        waiting = [sentence for sentence in pending if sentence.source]
        futures = self._batches.submit(self.model, [sentence.source for sentence in waiting], count, self._places)
        for sentence, future in zip(waiting, futures, strict=True):
            sentence.future = future
        return pending

    def _prepare(self, sentences: Sequence[str], kept: Sequence[Sequence[Span]] | None) -> list[_PendingSentence]:
        """The sentences with what must stay in them, and the pieces of those that have anything else."""
        pending = [
            _PendingSentence(text, _merged([*find_placeholders(text), *(kept[place] if kept else ())]))
            for place, text in enumerate(sentences)
        ]
        spoken = [sentence for sentence in pending if not is_kept(sentence.text, sentence.spans)]
        for sentence, source in zip(spoken, self.model.encode([each.text for each in spoken]), strict=True):
            sentence.source = source
        return pending

    async def _finish(self, pending: Sequence[_PendingSentence]) -> list[list[SentenceTranslation]]:
        found = []
        for sentence in pending:
            found.append(await self._candidates(sentence))
            await asyncio.sleep(0)  # where many are done already, others have their turn between them
        lost = [place for place, candidates in enumerate(found) if not candidates]
        if lost:
            for place, candidate in zip(lost, await self._in_parts([pending[place] for place in lost]), strict=True):
                found[place] = [candidate]
        return found

    async def _candidates(self, sentence: _PendingSentence) -> list[SentenceTranslation]:
        """The different translations that have all placeholders; of the best one, if it has lost some, none."""
        if sentence.future is None:
            return [SentenceTranslation(sentence.text, 0.0, [(span, span) for span in sentence.spans])]
        hypotheses = await sentence.future
        texts = self.model.tokenizer.decode([without_loop(each.ids, sentence.source) for each in hypotheses])
        literally = [sentence.text[start:end] for start, end in sentence.spans]
        found: dict[str, SentenceTranslation] = {}
        for text, hypothesis in zip(texts, hypotheses, strict=True):
            places = locate(literally, text)
            if places is not None:
                loss, kept = hypotheses[0].score - hypothesis.score, list(zip(sentence.spans, places, strict=True))
                found.setdefault(text, SentenceTranslation(text, loss, kept))
            elif not found:
                return []
        return list(found.values())

    async def _in_parts(self, sentences: Sequence[_PendingSentence]) -> list[SentenceTranslation]:
        """Sentences whose parts around what must stay are translated by themselves."""
        parts = [stretches(sentence.text, sentence.spans) for sentence in sentences]
        spoken = [part.text for each in parts for part in each if not part.kept]
        sources = await _aside(sum(map(len, spoken)), self.model.encode, spoken)
        # They do not wait again behind the rest of their request.
        futures = self._batches.submit(self.model, sources)
        try:
            ids = [without_loop((await future)[0].ids, ids) for future, ids in zip(futures, sources, strict=True)]
        finally:
            for future in futures:
                future.cancel()
        translated = iter(self.model.tokenizer.decode(ids))
        return [_put_together(each, translated) for each in parts]


@dataclass
class _PendingSentence:
    """A sentence, what of it must stay, and its place in the queue if it has something to translate."""

    text: str
    spans: list[Span]
    source: list[int] = field(default_factory=list)
    future: asyncio.Future[list[Hypothesis]] | None = None


async def _aside(characters: int, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a function returns; for a long text it runs in another thread."""
    if characters < LONG_TEXT:
        return function(*arguments, **options)
    return await asyncio.to_thread(function, *arguments, **options)


def _cancel(pending: Sequence[_PendingSentence]) -> None:
    """Take out of the queue what nobody waits for any more."""
    for sentence in pending:
        if sentence.future is not None:
            sentence.future.cancel()


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans in order; those that overlap as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _put_together(parts: Sequence[SentencePart], translated: Iterator[str]) -> SentenceTranslation:
    """A translation from parts, those that stay and the next of those that were translated."""
    texts: list[str] = []
    kept: list[tuple[Span, Span]] = []
    source = target = 0
    for part in parts:
        text = part.text if part.kept else next(translated)
        if part.is_placeholder:
            kept.append(((source, source + len(part.text)), (target, target + len(text))))
        texts.append(text)
        source, target = source + len(part.text), target + len(text)
    return SentenceTranslation("".join(texts), 0.0, kept)


def versions(found: Sequence[Sequence[SentenceTranslation]], alternatives: int) -> list[list[str]]:
    """The best translation of every sentence, and other versions of the whole.

    Each differs from the best in one sentence, where that costs least, the least costly first.
    """
    best = [candidates[0].text for candidates in found]
    others = [(each.loss, place, each.text) for place, sentence in enumerate(found) for each in sentence[1:]]
    changed = [[*best[:place], text, *best[place + 1 :]] for _, place, text in sorted(others)[:alternatives]]
    return [best, *changed]
