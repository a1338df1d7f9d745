"""A verdict for every training pair: what the rules say of a chunk, and which pairs came before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat, tee
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.config import CorpusConfig, Section
from tandem.corpus.arrays import write_array
from tandem.corpus.clean import KEPT, Rules, text_of
from tandem.corpus.duplicates import Digests, in_chunk
from tandem.corpus.scan import Chunk

Verdicts = NDArray[np.uint8]

# Bytes of text worked on at once: enough that whole-array work pays, little enough that what it makes of them, some
# twenty times as much, does not count.
_BATCH = 1 << 23


@dataclass(frozen=True)
class CleaningTask:
    """A chunk to judge, and where to leave the verdicts and the digests of what is kept."""

    chunk: Chunk
    settings: CorpusConfig
    languages: tuple[str, str]
    verdicts: Path
    digests: Path


class Cleaned(Section):
    """What judging a chunk found."""

    kept: int
    """Pairs that no rule drops, those included that are equal to one of another chunk."""
    undecoded: tuple[int, int]
    """Source and target lines that are not UTF-8."""
    source_words: int
    """Words of the source as it came, divided by blanks."""
    target_words: int
    """Words of the target as it came."""


def clean_chunk(task: CleaningTask) -> Cleaned:
    """Judge every pair of a chunk."""
    rules = _rules(task.settings, task.languages)
    verdicts, digests = bytearray(), Digests()
    source_words = target_words = 0
    undecoded = [0, 0]
    raw, judged = tee(task.chunk.raw_pairs())
    for line, (lines, found) in enumerate(zip(raw, rules.judge(judged), strict=True)):
        verdict, source, target, words_here, words_there = found
        if verdict == rules.broken_utf8:
            undecoded[0] += text_of(lines[0]) is None
            undecoded[1] += text_of(lines[1]) is None
        elif verdict == KEPT and not digests.add(line, source, target) and rules.duplicate is not None:
            verdict = rules.duplicate
        verdicts.append(verdict)
        source_words += words_here
        target_words += words_there
    digests.write(task.digests)
    write_array(task.verdicts, np.frombuffer(verdicts, dtype=np.uint8))
    return Cleaned(
        kept=verdicts.count(KEPT),
        undecoded=(undecoded[0], undecoded[1]),
        source_words=source_words,
        target_words=target_words,
    )


@lru_cache(maxsize=1)
def _rules(settings: CorpusConfig, languages: tuple[str, str]) -> Rules:
    # Kept from chunk to chunk: identifying languages takes a model.
    return Rules(settings, languages)


def with_duplicates(verdicts: Verdicts, chunk: int, duplicates: Sequence[NDArray[np.uint64]], name: int) -> Verdicts:
    """A chunk's verdicts after the pairs that came before are dropped under their rule too."""
    marked = verdicts.copy()
    marked[in_chunk(duplicates, chunk)] = name
    return marked


def batches(lines: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Pairs of lines in lists of a few megabytes, to be worked on as one."""
    some: list[tuple[bytes, bytes]] = []
    room = _BATCH
    for pair in lines:
        some.append(pair)
        room -= len(pair[0]) + len(pair[1])
        if room < 0:
            yield some
            some, room = [], _BATCH
    if some:
        yield some


def kept_lines(chunk: Chunk, verdicts: Path | None) -> Iterator[tuple[bytes, bytes]]:
    """The lines of the pairs of a chunk that are kept; without verdicts, all of them."""
    flags = repeat(KEPT, chunk.lines) if verdicts is None else np.load(verdicts).tolist()
    for verdict, (source, target) in zip(flags, chunk.raw_pairs(), strict=True):
        if verdict == KEPT:
            assert source is not None
            assert target is not None
            yield source, target
