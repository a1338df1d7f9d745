"""Counts the words of a sample of the kept pairs, which is all that a vocabulary is learnt from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from tandem.corpus.prepare.pair_verdicts import batches, kept_lines
from tandem.corpus.prepare.scan import Chunk
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.prepare.word_encoder import word_counts

SAMPLE_PAIRS = 250_000
"""Pairs that the vocabulary is learnt from, at most. The rarest of 32,000 merges is still seen some dozen times in
them; from twice as many, encoded text is shorter by less than a thousandth."""


def count_sampled_words(chunks: Iterable[tuple[Chunk, int]], stages: StageRunner) -> Mapping[str, int]:
    """Words and their counts in an even sample of the pairs kept in chunks, whose numbers are given.

    In a text too large to be counted whole, words seen once are left out: they are most of the different words, nearly
    all of them names, numbers and slips, and no merge depends on them. Learning takes half the time and memory then.
    """
    chunks = list(chunks)
    stride = max(1, -(-sum(kept for _, kept in chunks) // SAMPLE_PAIRS))
    calls, before = [], 0
    for chunk, kept in chunks:
        calls.append(partial(_count, chunk, stages.chunk_file("verdicts", chunk.number), -before % stride, stride))
        before += kept
    words: Counter[str] = Counter()
    for counted in stages.run("count words", calls):
        words.update(counted)
    return words if stride == 1 else {word: count for word, count in words.items() if count > 1}


def _count(chunk: Chunk, verdicts: Path, first: int, stride: int) -> Counter[str]:
    """Words of every `stride`-th kept pair, from the `first` on; only a space divides words, as in the tokenizer."""
    counts: Counter[str] = Counter()
    for some in batches(islice(kept_lines(chunk, verdicts), first, None, stride)):
        counts.update(word_counts([line.decode() for pair in some for line in pair]))
    del counts[""]
    # The tokenizer is told words and counts with a tab between.
    for word in [word for word in counts if "\t" in word]:
        count = counts.pop(word)
        for part in filter(None, word.split("\t")):
            counts[part] += count
    return counts
