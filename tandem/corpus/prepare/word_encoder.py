"""Encodes and counts text word by word, each different word once.

No piece of the vocabulary reaches across a space, so a sentence's pieces are those of its words one after the other.
A chunk of three million words has some hundred thousand different ones; finding them and putting their pieces in
place is done on whole arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.shards import EncodedSide, IntArray, encoded_side, id_dtype
from tandem.corpus.tokenizer import SPACE_MARK, Tokenizer

# Words that an encoder remembers before it begins anew: with their pieces about 100 MB.
_REMEMBERED_WORDS = 1 << 19


def word_counts(lines: Sequence[str]) -> dict[str, int]:
    """How often each word occurs; only a space divides words."""
    counts = _split(lines).values.value_counts()
    return dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


class WordEncoder:
    """Encodes many sentences of the same languages."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.dtype = id_dtype(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._fresh_names = (f"\0{number}" for number in count())
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._pieces: NDArray[Any] = np.empty(0, self.dtype)
        """The pieces of all words known, end to end in the order of their numbers."""
        self._ends: IntArray = np.zeros(1, np.int64)
        """Where each word's pieces end there, after a zero."""

    def encode(self, sentences: Sequence[str]) -> tuple[EncodedSide, int]:
        """Piece numbers of sentences, without BOS and EOS, and how many words they have, divided by blanks."""
        if len(self._numbers) > _REMEMBERED_WORDS:
            self._forget()
        # In what is not printable, and at its own space mark, SentencePiece may see spaces that we do not. Such a
        # sentence is one long word, under a name that no other has.
        splittable, unsplit = list(sentences), dict[str, str]()
        for place, sentence in enumerate(sentences):
            if not sentence.isprintable() or SPACE_MARK in sentence:
                splittable[place] = next(self._fresh_names)
                unsplit[splittable[place]] = sentence
        split = _split(splittable)
        found = split.values.dictionary_encode()
        words = self._numbers_of(found.dictionary.to_pylist(), unsplit)[found.indices.to_numpy()]
        # Nothing between two spaces is a word without pieces; printable text has no other spaces.
        count = int(np.count_nonzero(self._ends[words + 1] - self._ends[words]))
        count += sum(len(sentence.split()) - bool(self._length(name)) for name, sentence in unsplit.items())
        return self._put_together(words, split.offsets.to_numpy()), count

    def _numbers_of(self, words: Sequence[str], unsplit: dict[str, str]) -> IntArray:
        """The numbers of different words; those that are new are encoded first."""
        if new := [word for word in words if word not in self._numbers]:
            pieces = self._tokenizer.encode([unsplit.get(word, word) for word in new], threads=1)
            encoded = encoded_side(pieces, self.dtype)
            self._numbers.update(zip(new, count(len(self._numbers)), strict=False))
            self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(encoded.lengths)])
            self._pieces = np.concatenate([self._pieces, encoded.ids])
        return np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))

    def _length(self, word: str) -> int:
        number = self._numbers[word]
        return int(self._ends[number + 1] - self._ends[number])

    def _put_together(self, words: IntArray, sentence_ends: IntArray) -> EncodedSide:
        """The pieces of words in a row, which sentences divide."""
        starts, ends = self._ends[words], self._ends[words + 1]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)])
        places = np.repeat(starts - before[:-1], ends - starts) + np.arange(before[-1])
        return EncodedSide(self._pieces[places], np.diff(before[sentence_ends]))


def _split(lines: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.split_pattern(pa.array(lines, pa.large_string()), " ")
