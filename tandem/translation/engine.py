"""What translates ids: the interface of the engines, PyTorch's and CTranslate2's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Hypothesis:
    """A translation that the search found, and what it is worth."""

    ids: list[int]
    """Pieces, without BOS and EOS."""
    score: float
    """Log-probability divided by the length penalty of `search.length_penalty`; the highest is the best."""


class Engine(Protocol):
    """Translates sentences given as piece numbers, without BOS and EOS. Several threads may use one at once."""

    name: str
    """What a user calls it: `tandem` or `ctranslate2`."""
    longest_source: int
    """Pieces a sentence may have; what is longer must be split first."""

    def translate(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The best translation of each sentence, in order; an empty one stays empty, no other becomes so."""


def token_batches(lengths: Sequence[int], batch_tokens: int | None, most: int | None = None) -> list[list[int]]:
    """Indices of sentences that are translated together: of like length, at most so many pieces with padding.

    `most` bounds their number. Empty sentences need no translation and are in no batch. The longest come first: what
    is begun last should end soon.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
        if room == 0:
            batches.append([])
            by_tokens = len(lengths) if batch_tokens is None else batch_tokens // lengths[index]
            room = max(1, min(by_tokens, most or by_tokens))
        batches[-1].append(index)
        room -= 1
    return batches
