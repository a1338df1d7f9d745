"""Turns the pairs of a chunk into a shard of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tandem.config import Section
from tandem.corpus.scan import Chunk
from tandem.corpus.shards import EncodedSide, write_shard
from tandem.corpus.tokenizer import Tokenizer
from tandem.corpus.verdicts import batches, kept_lines
from tandem.corpus.wordwise import WordwiseEncoder


@dataclass(frozen=True)
class EncodingTask:
    """A chunk to encode with a tokenizer, and the directory of the shard; without verdicts all pairs are kept."""

    chunk: Chunk
    verdicts: Path | None
    tokenizer: Path
    directory: Path


class SideAmount(Section):
    """How much one side of a shard holds."""

    bytes: int
    """Bytes of its text, newlines included."""
    words: int
    """Words, divided by blanks."""
    tokens: int
    """Pieces, without BOS, EOS and padding."""


class EncodedChunk(Section):
    """What encoding a chunk found."""

    pairs: int
    """Pairs in the shard."""
    source: SideAmount
    """The language translated from."""
    target: SideAmount
    """The language translated into."""


def encode_chunk(task: EncodingTask) -> EncodedChunk:
    """Write the shard of a chunk."""
    encoder = _encoder(task.tokenizer.read_bytes())
    source, target = _Side(encoder), _Side(encoder)
    for some in batches(kept_lines(task.chunk, task.verdicts)):
        source.add([line for line, _ in some])
        target.add([line for _, line in some])
    write_shard(task.directory, task.chunk.number, source.encoded(), target.encoded())
    return EncodedChunk(pairs=source.sentences, source=source.amount(), target=target.amount())


@lru_cache(maxsize=1)
def _encoder(model: bytes) -> WordwiseEncoder:
    # Kept from chunk to chunk: what it remembers of words is what makes it fast. Not by the model's path, at which the
    # next corpus may have another.
    return WordwiseEncoder(Tokenizer(model))


class _Side:
    """One language of a shard in the making."""

    def __init__(self, encoder: WordwiseEncoder) -> None:
        self._encoder = encoder
        self._parts = [EncodedSide(np.empty(0, encoder.dtype), np.empty(0, np.int64))]
        self._bytes = self._words = self.sentences = 0

    def add(self, lines: Sequence[bytes]) -> None:
        encoded = self._encoder.encode([line.decode() for line in lines])
        self._parts.append(encoded.side)
        self.sentences += len(lines)
        self._bytes += sum(map(len, lines)) + len(lines)
        self._words += encoded.words

    def encoded(self) -> EncodedSide:
        ids = np.concatenate([part.ids for part in self._parts])
        return EncodedSide(ids, np.concatenate([part.lengths for part in self._parts]))

    def amount(self) -> SideAmount:
        tokens = sum(len(part.ids) for part in self._parts)
        return SideAmount(bytes=self._bytes, words=self._words, tokens=tokens)
