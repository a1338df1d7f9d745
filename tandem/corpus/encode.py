"""Turns the pairs of a chunk into a shard of token ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tandem.config import Section
from tandem.corpus.scan import Chunk
from tandem.corpus.shards import EncodedSide, write_shard
from tandem.corpus.tokenizer import Tokenizer, WordEncoder
from tandem.corpus.verdicts import kept_lines


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
    encoder = _encoder(task.tokenizer)
    source, target = _Side(encoder), _Side(encoder)
    for source_line, target_line in kept_lines(task.chunk, task.verdicts):
        source.add(source_line)
        target.add(target_line)
    write_shard(task.directory, task.chunk.number, source.encoded(), target.encoded())
    return EncodedChunk(pairs=len(source.sentences), source=source.amount(), target=target.amount())


@lru_cache(maxsize=1)
def _encoder(path: Path) -> WordEncoder:
    # Kept from chunk to chunk: what it remembers of words is what makes it fast.
    return WordEncoder(Tokenizer.load(path))


class _Side:
    """One language of a shard in the making."""

    def __init__(self, encoder: WordEncoder) -> None:
        self._encoder = encoder
        self.sentences: list[bytes] = []
        self._bytes = self._words = 0

    def add(self, line: bytes) -> None:
        sentence, words = self._encoder.encode(line.decode())
        self.sentences.append(sentence)
        self._bytes += len(line) + 1
        self._words += words

    def encoded(self) -> EncodedSide:
        size = self._encoder.dtype.itemsize
        lengths = np.array([len(sentence) // size for sentence in self.sentences], dtype=np.int64)
        return EncodedSide(np.frombuffer(b"".join(self.sentences), dtype=self._encoder.dtype), lengths)

    def amount(self) -> SideAmount:
        size = self._encoder.dtype.itemsize
        return SideAmount(bytes=self._bytes, words=self._words, tokens=sum(map(len, self.sentences)) // size)
