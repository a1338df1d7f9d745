"""Gives every training pair a verdict: kept, or the number of the cleaning rule that drops it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat, tee
from pathlib import Path

import numpy as np

from tandem.config import CorpusConfig, Section
from tandem.corpus.prepare.cleaning_rules import KEPT, CleaningRules, check_encoding, text_of
from tandem.corpus.prepare.duplicates import PairDigests, find_duplicates, lines_in_chunk
from tandem.corpus.prepare.scan import Chunk, Split
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.shards import write_array

# Bytes of text worked on at once: enough that whole-array work pays, little enough that what it makes of them, some
# twenty times as much, does not count.
_BATCH = 1 << 23


class CleanedChunk(Section):
    """What the rules found in a chunk."""

    kept: int
    """Pairs that no rule drops, those included that are equal to one of another chunk."""
    undecoded: tuple[int, int]
    """Source and target lines that are not UTF-8."""
    words: tuple[int, int]
    """Words of source and target as they came, divided by blanks."""


class CleanedSplit(Section):
    """What cleaning left of the training text."""

    kept: list[int]
    """Pairs kept of each chunk."""
    dropped: dict[str, int]
    """Pairs dropped by each rule."""


def clean(train: Split, rules: CleaningRules, stages: StageRunner) -> list[CleanedChunk]:
    """Apply the rules that need no other pair to all chunks; refuse files in another encoding."""

    def call(chunk: Chunk) -> partial[CleanedChunk]:
        places = (stages.chunk_file(what, chunk.number) for what in ("judged", "digests"))
        return partial(_clean_chunk, chunk, rules.settings, rules.languages, *places)

    cleaned = stages.run_noted("clean", train, call, CleanedChunk)
    for pair, chunks in train.by_pair(cleaned):
        for side, path in enumerate(pair.files):
            check_encoding(path, sum(chunk.undecoded[side] for chunk in chunks), pair.lines)
    return cleaned


def _clean_chunk(
    chunk: Chunk, settings: CorpusConfig, languages: tuple[str, str], verdict_file: Path, digest_file: Path
) -> CleanedChunk:
    rules = _rules(settings, languages)
    verdicts, digests = bytearray(), PairDigests()
    source_words = target_words = 0
    undecoded = [0, 0]
    raw, judged = tee(chunk.raw_pairs())
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
    digests.write(digest_file)
    write_array(verdict_file, np.frombuffer(verdicts, dtype=np.uint8))
    return CleanedChunk(
        kept=verdicts.count(KEPT), undecoded=(undecoded[0], undecoded[1]), words=(source_words, target_words)
    )


@lru_cache(maxsize=1)
def _rules(settings: CorpusConfig, languages: tuple[str, str]) -> CleaningRules:
    # Kept from chunk to chunk: identifying languages takes a model.
    return CleaningRules(settings, languages)


def drop_duplicates(
    train: Split, cleaned: Sequence[CleanedChunk], rules: CleaningRules, stages: StageRunner
) -> CleanedSplit:
    """Drop pairs that came before, if the settings say so, and add up what was dropped."""
    if found := stages.log.read("judged", CleanedSplit):
        return found
    pairs = sum(chunk.kept for chunk in cleaned)
    duplicates = find_duplicates(len(train.chunks), pairs, stages) if rules.duplicate else []
    counts, kept = np.zeros(len(rules.names) + 1, dtype=np.int64), []
    for chunk in train.chunks:
        verdicts = np.load(stages.chunk_file("judged", chunk.number))
        if rules.duplicate:
            verdicts[lines_in_chunk(duplicates, chunk.number)] = rules.duplicate
        write_array(stages.chunk_file("verdicts", chunk.number), verdicts)
        counts += np.bincount(verdicts, minlength=len(counts))
        kept.append(int((verdicts == KEPT).sum()))
    found = CleanedSplit(kept=kept, dropped=dict(zip(rules.names, counts[1:].tolist(), strict=True)))
    stages.log.finish("judged", found)
    return found


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
