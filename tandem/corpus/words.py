"""Counts the words of a sample of the kept pairs, which is all that a vocabulary is learnt from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tandem.corpus.scan import Chunk
from tandem.corpus.verdicts import batches, kept_lines
from tandem.corpus.wordwise import word_counts

SAMPLE_PAIRS = 250_000
"""Pairs that the vocabulary is learnt from, at most. The rarest of 32,000 merges is still seen some dozen times in
them; from twice as many, encoded text is shorter by less than a thousandth."""


@dataclass(frozen=True)
class CountingTask:
    """A chunk of which every `stride`-th kept pair is counted, from the `first` on."""

    chunk: Chunk
    verdicts: Path
    first: int
    stride: int


def counting_tasks(chunks: Iterable[tuple[Chunk, Path, int]]) -> list[CountingTask]:
    """Tasks that together look at an even sample of the pairs kept in each chunk, whoever does them."""
    chunks = list(chunks)
    stride = max(1, -(-sum(kept for _, _, kept in chunks) // SAMPLE_PAIRS))
    tasks, before = [], 0
    for chunk, verdicts, kept in chunks:
        tasks.append(CountingTask(chunk, verdicts, -before % stride, stride))
        before += kept
    return tasks


def worth_learning_from(words: Counter[str], stride: int) -> Mapping[str, int]:
    """The words that a vocabulary is learnt from.

    Of a text too large to be counted whole, those seen once are left out: they are most of the different words, nearly
    all of them names, numbers and slips, and no merge depends on them. Learning takes half the time and memory then.
    """
    return words if stride == 1 else {word: count for word, count in words.items() if count > 1}


def count_chunk(task: CountingTask) -> Counter[str]:
    """How often each word occurs in both languages of the sample; only a space divides words, as in the tokenizer."""
    counts: Counter[str] = Counter()
    sample = islice(kept_lines(task.chunk, task.verdicts), task.first, None, task.stride)
    for some in batches(sample):
        counts.update(word_counts([line.decode() for pair in some for line in pair]))
    del counts[""]
    # The tokenizer is told words and counts with a tab between.
    for word in [word for word in counts if "\t" in word]:
        count = counts.pop(word)
        for part in filter(None, word.split("\t")):
            counts[part] += count
    return counts
