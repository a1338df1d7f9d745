"""New pieces for a vocabulary that exists: byte-pair encoding goes on where it stopped, on another text.

The old vocabulary splits the new text's words; from there the most frequent pair of neighbours becomes a piece, again
and again. SentencePiece merges the pair that makes the piece with the best score, and those of new pieces are below all
old ones. So old merges are made as before, every new piece can be reached, and no piece reaches across a space.
"""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise

from tandem.corpus.tokenizer import RARE_CHARACTER, SPACE_MARK, Tokenizer
from tandem.vocabulary import FIRST_BYTE, FIRST_LEARNT

# What SentencePiece allows the pieces that it learns itself.
MOST_CHARACTERS = 16
# A pair seen once is no pattern.
FEWEST_SEEN = 2
# Stands for a character without a piece of its own, across which nothing is merged.
BARRIER = ""
# Scripts that are written side by side in one word.
ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK"}


def learn_more_pieces(words: Mapping[str, int], tokenizer: Tokenizer, most: int) -> list[str]:
    """At most so many new pieces from words and how often each occurs, in the order in which they are merged.

    First come characters that a new vocabulary would have, in up to half of the room; then merges.
    """
    ranks = {piece: number for number, piece in enumerate(tokenizer.pieces()) if number >= FIRST_LEARNT}
    spelled, counts = _spelled(list(words), tokenizer), list(words.values())
    characters = _new_characters(spelled, counts, ranks)[: most // 2]
    ranks |= {character: tokenizer.vocab_size + place for place, character in enumerate(characters)}
    for symbols in spelled:
        symbols[:] = [symbol if symbol in ranks else BARRIER for symbol in symbols]
    merges = _Merges(spelled, counts, ranks)
    return [*characters, *islice(merges, most - len(characters))]


def _spelled(words: Sequence[str], tokenizer: Tokenizer) -> list[list[str]]:
    """The pieces of each word; characters that the vocabulary spells in bytes stand for themselves."""
    pieces, spelled = tokenizer.pieces(), []
    for numbers in tokenizer.encode(words):
        symbols, pending = list[str](), bytearray()
        for number in numbers:
            if FIRST_BYTE <= number < FIRST_LEARNT:
                pending.append(number - FIRST_BYTE)
            else:
                symbols += [*pending.decode(), pieces[number]]
                pending.clear()
        spelled.append([*symbols, *pending.decode()])
    return spelled


def _new_characters(spelled: Sequence[Sequence[str]], counts: Sequence[int], known: Mapping[str, int]) -> list[str]:
    """Characters without a piece that are common enough for one, the most frequent first."""
    seen: Counter[str] = Counter()
    total = 0
    for symbols, count in zip(spelled, counts, strict=True):
        total += count * sum(map(len, symbols))
        for symbol in symbols:
            # What is not printable, such as other spaces, is left to bytes.
            if symbol not in known and symbol.isprintable():
                seen[symbol] += count
    common = [character for character, count in seen.items() if count * RARE_CHARACTER >= total]
    return sorted(common, key=lambda character: (-seen[character], character))


class _Merges:
    """The pieces that byte-pair encoding finds in words next, one after the other; `ranks` grows by each.

    Pairs are counted by the piece that they make, as SentencePiece looks for them: "a" + "bc" and "ab" + "c" are one.
    """

    def __init__(self, spelled: list[list[str]], counts: Sequence[int], ranks: dict[str, int]) -> None:
        self._spelled, self._counts, self._ranks = spelled, counts, ranks
        self._next_rank = max(ranks.values()) + 1
        self._seen: Counter[str] = Counter()
        self._words: dict[str, set[int]] = {}
        """The words in which a pair may still be found."""
        for word in range(len(spelled)):
            self._count(word, counts[word])
        self._queue = [(-count, piece) for piece, count in self._seen.items()]
        heapq.heapify(self._queue)

    def __iter__(self) -> Iterator[str]:
        while self._queue:
            count, piece = heapq.heappop(self._queue)
            # Of equals the first by its text: the result must not depend on the order of words.
            if self._seen[piece] == -count >= FEWEST_SEEN:
                self._merge(piece)
                yield piece

    def _merge(self, piece: str) -> None:
        self._ranks[piece] = self._next_rank
        self._next_rank += 1
        del self._seen[piece]
        changed: set[str] = set()
        for word in sorted(self._words.pop(piece)):
            changed |= self._count(word, -self._counts[word])
            _join(self._spelled[word], self._ranks)
            changed |= self._count(word, self._counts[word])
        for pair in changed:
            heapq.heappush(self._queue, (-self._seen[pair], pair))

    def _count(self, word: int, change: int) -> set[str]:
        """Count the pairs of a word in or out; which they are."""
        pairs = [left + right for left, right in pairwise(self._spelled[word]) if left and right]
        found = [pair for pair in pairs if pair not in self._ranks and _may_be_piece(pair)]
        for pair in found:
            self._seen[pair] += change
            self._words.setdefault(pair, set()).add(word)
        return set(found)


def _join(symbols: list[str], ranks: Mapping[str, int]) -> None:
    """Merge neighbours that make a piece, the one of the best rank first and of equals the leftmost: SentencePiece's
    way."""
    while True:
        makes = [
            (ranks[left + right], place)
            for place, (left, right) in enumerate(pairwise(symbols))
            if left and right and left + right in ranks
        ]
        if not makes:
            return
        _, place = min(makes)
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


@lru_cache(maxsize=1 << 16)
def _may_be_piece(text: str) -> bool:
    """Whether SentencePiece would learn this: not too long, in one script, with a space at its beginning alone."""
    letters = text.removeprefix(SPACE_MARK)
    if len(text) > MOST_CHARACTERS or SPACE_MARK in letters or not text.isprintable():
        return False
    return len({_script(letter) for letter in letters}) == 1


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    """The script of a letter, by the first word of its name; none for digits, signs and punctuation."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    return ONE_SCRIPT.get(script, script)
