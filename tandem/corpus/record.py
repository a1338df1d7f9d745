"""Puts what the stages of a prepare found together as the facts of corpus.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.corpus.encode import EncodedChunk, SideAmount
from tandem.corpus.inputs import Split
from tandem.corpus.prepared import Amount, EncodedAmount, InputFacts, SideFacts, SplitFacts
from tandem.corpus.scan import ScannedText
from tandem.corpus.shards import SIDES


@dataclass(frozen=True)
class Outcome:
    """What became of a split."""

    split: Split
    chunks: Sequence[EncodedChunk]
    dropped: dict[str, int]
    raw_words: tuple[int, int] | None
    """Words of each side before cleaning, where there was a cleaning."""
    in_train: int = 0
    """Pairs that stand in the training text too."""


def split_facts(outcome: Outcome, directory: Path) -> SplitFacts:
    """What corpus.json says of a split, whose shards are in `directory`."""
    pairs = sum(chunk.pairs for chunk in outcome.chunks)
    texts = zip(*outcome.split.texts, strict=True)
    amounts = zip(*((chunk.source, chunk.target) for chunk in outcome.chunks), strict=True)
    stored = (sum(path.stat().st_size for path in directory.glob(f"*.{side}.npy")) for side in SIDES)
    raw_words = outcome.raw_words or (None, None)
    source, target = (_side_facts(*side, pairs=pairs) for side in zip(texts, amounts, raw_words, stored, strict=True))
    return SplitFacts(dropped=outcome.dropped, in_train=outcome.in_train, source=source, target=target)


def _side_facts(
    texts: Sequence[ScannedText], amounts: Sequence[SideAmount], raw_words: int | None, stored: int, *, pairs: int
) -> SideFacts:
    words = sum(amount.words for amount in amounts)
    return SideFacts(
        inputs=[
            InputFacts(name=text.name, bytes=text.file_bytes, sha256=text.sha256, lines=text.lines) for text in texts
        ],
        raw=Amount.of(
            sum(text.lines for text in texts),
            sum(text.bytes for text in texts),
            words if raw_words is None else raw_words,
        ),
        cleaned=Amount.of(pairs, sum(amount.bytes for amount in amounts), words),
        encoded=EncodedAmount(
            lines=pairs, bytes=stored, mb=stored / 1e6, tokens=sum(amount.tokens for amount in amounts)
        ),
    )
