"""Turns the pairs of a split into shards of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from tandem.config import Section
from tandem.corpus.prepare.pair_verdicts import batches, kept_lines
from tandem.corpus.prepare.scan import Chunk, Split, all_lines
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.prepare.word_encoder import WordEncoder
from tandem.corpus.prepared import TEXT_FILES, EncodedAmount, InputFacts, SideFacts, SplitFacts, TextAmount
from tandem.corpus.shards import SIDES, EncodedSide, write_shard
from tandem.corpus.tokenizer import Tokenizer
from tandem.layout import TOKENIZER_FILE
from tandem.storage import whole_file


class _EncodedChunk(Section):
    """How much a shard holds; tuples are for source and target."""

    pairs: int
    bytes: tuple[int, int]
    """Bytes of text, newlines included."""
    words: tuple[int, int]
    tokens: tuple[int, int]
    """Pieces, without BOS, EOS and padding."""


def encode(
    split: Split,
    stages: StageRunner,
    *,
    dropped: dict[str, int] | None = None,
    raw_words: Sequence[int] | None = None,
    in_train: int = 0,
) -> SplitFacts:
    """Write a shard for every chunk; for dev sets and test also the text, because BLEU is measured on all of it.

    What cleaning dropped, the words before it and the pairs that stand in the training text too are for the facts.
    """
    is_train = split.name == "train"
    directory = stages.log.built / split.name
    directory.mkdir(exist_ok=True)
    if not is_train:
        for name, texts in zip(TEXT_FILES, split.sides, strict=True):
            with whole_file(directory / name) as copy:
                copy.writelines((line or b"") + b"\n" for text in texts for line in all_lines(text))
    tokenizer = stages.log.built / TOKENIZER_FILE

    def call(chunk: Chunk) -> partial[_EncodedChunk]:
        verdicts = stages.chunk_file("verdicts", chunk.number) if is_train else None
        return partial(_encode_chunk, chunk, verdicts, tokenizer, directory)

    chunks = stages.run_noted("encode", split, call, _EncodedChunk)
    source, target = (_side_facts(split, side, chunks, directory, raw_words) for side in (0, 1))
    return SplitFacts(dropped=dropped or {}, in_train=in_train, source=source, target=target)


def _side_facts(
    split: Split, side: int, chunks: Sequence[_EncodedChunk], directory: Path, raw_words: Sequence[int] | None
) -> SideFacts:
    """What corpus.json says of one language; where there was no cleaning, the raw words are those encoded."""
    texts, pairs = split.sides[side], sum(chunk.pairs for chunk in chunks)
    words = sum(chunk.words[side] for chunk in chunks)
    stored = sum(path.stat().st_size for path in directory.glob(f"*.{SIDES[side]}.npy"))
    lines, size = sum(text.lines for text in texts), sum(text.text_bytes for text in texts)
    return SideFacts(
        inputs=[InputFacts(**text.model_dump(include={*InputFacts.model_fields})) for text in texts],
        raw=TextAmount.of(lines, size, words=raw_words[side] if raw_words else words),
        cleaned=TextAmount.of(pairs, sum(chunk.bytes[side] for chunk in chunks), words=words),
        encoded=EncodedAmount.of(pairs, stored, tokens=sum(chunk.tokens[side] for chunk in chunks)),
    )


def _encode_chunk(chunk: Chunk, verdicts: Path | None, tokenizer: Path, directory: Path) -> _EncodedChunk:
    encoder = _encoder(tokenizer.read_bytes())
    nothing = EncodedSide(np.empty(0, encoder.dtype), np.empty(0, np.int64))
    parts, sizes, words = ([nothing], [nothing]), [0, 0], [0, 0]
    for some in batches(kept_lines(chunk, verdicts)):
        for side, lines in enumerate(zip(*some, strict=True)):
            encoded, count = encoder.encode([line.decode() for line in lines])
            parts[side].append(encoded)
            sizes[side] += sum(map(len, lines)) + len(lines)
            words[side] += count
    source, target = (
        EncodedSide(np.concatenate([part.ids for part in side]), np.concatenate([part.lengths for part in side]))
        for side in parts
    )
    write_shard(directory, chunk.number, source, target)
    return _EncodedChunk(
        pairs=len(source.lengths),
        bytes=(sizes[0], sizes[1]),
        words=(words[0], words[1]),
        tokens=(len(source.ids), len(target.ids)),
    )


@lru_cache(maxsize=1)
def _encoder(model: bytes) -> WordEncoder:
    # Kept from chunk to chunk: what it remembers of words is what makes it fast. Not by the model's path, at which the
    # next corpus may have another.
    return WordEncoder(Tokenizer(model))
