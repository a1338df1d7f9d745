"""Makes parallel text of any size out of a small corpus: no line twice, ever more different words, and some dirt.

A line is a few real sentence pairs in a row. Into some of them goes a word that the small corpus does not have: a
made-up name or a number, the same on both sides, or a compound of two words, which German writes as one. They are
drawn by laws with long tails, so that the number of different words grows with the text as in real text. A few percent
of the lines are what cleaning is for. The beginning of a long text is the shorter text of the same seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from tandem.config import CorpusConfig
from tandem.corpus.text_files import LONGEST_LINE
from tandem.demo import generate

Pair = tuple[str, str]

LANGUAGES = ("en", "de")
HELD_OUT_PAIRS = 500
"""Each for dev and test, never in training lines: enough to score, few enough to be scored in a minute."""
GRAMMAR_PAIRS = 20_000
"""Of the demo grammar, where there is no other text."""
BLOCK_LINES = 50_000
"""Lines made and written at once: random numbers come cheap by the million, and so many lines fit anywhere."""
SENTENCES = (2, 2, 2, 3, 3, 4, 5, 7)
"""In a line, each of these as likely as the others: most lines are short and some are long, 140 bytes on average, and
with two sentences hardly any comes twice by chance."""

# Shares of the sentences that get such a word: together, one word in fourteen is not from the small corpus. With the
# exponents below that makes about 1.5 million different English and 3 million different German words in 4.5 million
# lines, which is the order of what WMT16 has.
NAME_SHARE, NUMBER_SHARE, COMPOUND_SHARE = 0.18, 0.04, 0.25
# Every so many compounds are written with a hyphen in English, the others as two words.
HYPHEN_EVERY = 5
# Exponents of the chance of the n-th word, n to the power of minus this: the closer to 1, the more words come once.
NAME_EXPONENT, COMPOUND_EXPONENT = 1.12, 1.13
MOST_WORDS_DRAWN = 10**9
"""Far more than are ever drawn, and few enough that no name has more than five syllables."""
LARGEST_NUMBER = 10**6
# More are too many for the cleaning rules.
MOST_WORDS = CorpusConfig().max_words
SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ar"))


@dataclass(frozen=True)
class MadeText:
    """Files of training, dev and test text, source first, and what is known of the training text."""

    train: tuple[Path, Path]
    dev: tuple[Path, Path]
    test: tuple[Path, Path]
    pairs: int
    bytes: int
    words: tuple[int, int]
    different_words: tuple[int, int]
    dirt: dict[str, int]
    """Lines of each kind of dirt."""


def read_pairs(directory: Path) -> list[Pair]:
    """The sentence pairs of a directory with one `.en` and one `.de` file, or of the demo grammar without them."""
    files = [sorted(directory.glob(f"*.{language}")) for language in LANGUAGES]
    if not all(len(found) == 1 for found in files):
        return [(pair.source, pair.target) for pair in generate(GRAMMAR_PAIRS).train]
    source, target = (found[0].read_text(encoding="utf-8").splitlines() for found in files)
    return list(zip(source, target, strict=True))


def make_text(directory: Path, sentences: Sequence[Pair], pairs: int, seed: int = 1) -> MadeText:
    """Write so many training lines, made of these sentence pairs, and dev and test text from pairs held out."""
    directory.mkdir(parents=True, exist_ok=True)
    shuffled = random.Random(seed).sample(sentences, len(sentences))
    dev, test, rest = np.split(np.arange(len(shuffled)), [HELD_OUT_PAIRS, 2 * HELD_OUT_PAIRS])
    files = {}
    for split, rows in (("dev", dev), ("test", test)):
        files[split] = _files(directory, split)
        for side, path in enumerate(files[split]):
            path.write_text("".join(f"{shuffled[row][side]}\n" for row in rows), encoding="utf-8")
    writer = Writer([shuffled[row] for row in rest])
    train = _files(directory, "train")
    words, different, dirt = [0, 0], (set[str](), set[str]()), Counter[str]()
    with train[0].open("wb") as source, train[1].open("wb") as target:
        for block, lines in enumerate(_block_sizes(pairs)):
            sides = writer.block(lines, np.random.default_rng([seed, block]), dirt)
            for side, (file, made) in enumerate(zip((source, target), sides, strict=True)):
                text = "\n".join(made) + "\n"
                file.write(text.encode("utf-8", "surrogateescape"))
                found = text.split()
                words[side] += len(found)
                different[side].update(found)
    return MadeText(
        train=train,
        dev=files["dev"],
        test=files["test"],
        pairs=pairs,
        bytes=sum(path.stat().st_size for path in train),
        words=(words[0], words[1]),
        different_words=(len(different[0]), len(different[1])),
        dirt=dict(dirt),
    )


def _files(directory: Path, split: str) -> tuple[Path, Path]:
    source, target = (directory / f"{split}.{language}" for language in LANGUAGES)
    return source, target


def _block_sizes(pairs: int) -> Iterator[int]:
    for start in range(0, pairs, BLOCK_LINES):
        yield min(BLOCK_LINES, pairs - start)


class Writer:
    """Makes lines out of sentence pairs."""

    def __init__(self, sentences: Sequence[Pair]) -> None:
        self._sentences = (tuple(pair[0] for pair in sentences), tuple(pair[1] for pair in sentences))
        self._places = tuple(tuple(_place(sentence) for sentence in side) for side in self._sentences)
        self._words = tuple(_common_words(side) for side in self._sentences)
        self._repeated: list[Pair] = []
        """Lines of the first block, for duplicates from far away."""

    def block(self, lines: int, rng: np.random.Generator, dirt: Counter[str]) -> tuple[list[str], list[str]]:
        """So many lines of either side; what dirt they got is added to `dirt`."""
        # The random numbers of a whole block are drawn whatever its size, so that a shorter text is a beginning.
        counts = rng.choice(SENTENCES, BLOCK_LINES)
        rows = rng.integers(len(self._sentences[0]), size=int(counts.sum()))
        additions = self._additions(len(rows), rng)
        ends = [0, *accumulate(counts.tolist())]
        sides = tuple(self._joined(side, rows.tolist(), additions, ends) for side in (0, 1))
        made = list(zip(*sides, strict=True))
        if not self._repeated:
            self._repeated = made[:1000]
        soil(made, self._repeated, lines, rng, dirt)
        source, target = zip(*made[:lines], strict=True)
        return list(source), list(target)

    def _joined(self, side: int, rows: list[int], additions: list[tuple[int, Pair]], ends: list[int]) -> list[str]:
        known, places = self._sentences[side], self._places[side]
        sentences = [known[row] for row in rows]
        for position, word in additions:
            place = places[rows[position]]
            sentences[position] = f"{sentences[position][:place]} {word[side]}{sentences[position][place:]}"
        return [" ".join(sentences[start:end]) for start, end in pairwise(ends)]

    def _additions(self, sentences: int, rng: np.random.Generator) -> list[tuple[int, Pair]]:
        """Which sentences get a word, and which word on either side."""
        shares = np.cumsum([NAME_SHARE, NUMBER_SHARE, COMPOUND_SHARE])
        kinds = np.searchsorted(shares, rng.random(sentences), side="right")
        names, numbers, compounds = (np.flatnonzero(kinds == kind) for kind in range(len(shares)))
        first, second = (long_tailed(rng, len(compounds), COMPOUND_EXPONENT, MOST_WORDS_DRAWN) for _ in range(2))
        added: list[tuple[int, Pair]] = []
        for position, number in zip(
            names.tolist(), long_tailed(rng, len(names), NAME_EXPONENT, MOST_WORDS_DRAWN), strict=True
        ):
            added.append((position, (name := name_of(number), name)))
        # All magnitudes are equally likely, as in real text.
        amounts = np.exp(rng.random(len(numbers)) * np.log(LARGEST_NUMBER)).astype(np.int64)
        added += [(position, (str(n), str(n))) for position, n in zip(numbers.tolist(), amounts.tolist(), strict=True)]
        for position, one, two in zip(compounds.tolist(), first, second, strict=True):
            added.append((position, self._compound(one, two)))
        return added

    def _compound(self, first: int, second: int) -> Pair:
        english, german = self._words
        mark = "-" if (first + second) % HYPHEN_EVERY == 0 else " "
        return (
            f"{english[first % len(english)]}{mark}{english[second % len(english)]}",
            f"{german[first % len(german)].capitalize()}{german[second % len(german)]}",
        )


def long_tailed(rng: np.random.Generator, count: int, exponent: float, most: int) -> list[int]:
    """Numbers from 0 to below `most`, n with a chance of about n to the power of -`exponent`."""
    drawn = rng.random(count) ** (-1 / (exponent - 1))
    # What is beyond the end comes back anywhere: as a word that is most likely new.
    drawn[drawn >= most] = rng.integers(most, size=int((drawn >= most).sum()))
    numbers: list[int] = (drawn.astype(np.int64) - 1).clip(0).tolist()
    return numbers


def name_of(number: int) -> str:
    """The number spelt in syllables, so that frequent names are short and no two are the same."""
    syllables = []
    while True:
        number, digit = divmod(number, len(SYLLABLES))
        syllables.append(SYLLABLES[digit])
        if not number:
            return "".join(syllables).capitalize()


def _place(sentence: str) -> int:
    """Where a word can be put in: after the first half of the words, or at the end of a sentence of one word."""
    blank = sentence.find(" ", len(sentence) // 2)
    return blank if blank >= 0 else len(sentence)


def _common_words(sentences: Sequence[str]) -> list[str]:
    """All words of letters only, in lower case, the most frequent first."""
    counts = Counter(word for sentence in sentences for word in sentence.lower().split() if word.isalpha())
    return [word for word, _ in counts.most_common()]


DIRT: dict[str, tuple[float, Callable[[Pair, Pair], Pair]]] = {
    "repeated": (0.015, lambda pair, other: other),
    "empty side": (0.003, lambda pair, other: (pair[0], "")),
    "too long": (0.003, lambda pair, other: _prolonged(pair)),
    "uneven": (0.003, lambda pair, other: ("No.", f"{pair[1]} {other[1]}")),
    "control character": (0.002, lambda pair, other: (f"{pair[0]}\x07", pair[1])),
    "broken UTF-8": (0.002, lambda pair, other: (pair[0], f"{pair[1]} \udcfc\udcdf")),
    "copy": (0.004, lambda pair, other: (pair[0], pair[0])),
    "endless": (0.000_002, lambda pair, other: (f"{pair[0]} " * (LONGEST_LINE // len(pair[0]) + 1), pair[1])),
}
"""Kinds of dirt with their shares of the lines, and how each is made of a line and another; surrogates stand for
single bytes that are no UTF-8."""


def _prolonged(pair: Pair) -> Pair:
    """The pair over and over, until the source has too many words."""
    times = MOST_WORDS // len(pair[0].split()) + 1
    return " ".join([pair[0]] * times), " ".join([pair[1]] * times)


def soil(made: list[Pair], repeated: Sequence[Pair], lines: int, rng: np.random.Generator, dirt: Counter[str]) -> None:
    """Spoil a few percent of the lines in place; those among the first `lines` are counted."""
    bounds = np.cumsum([share for share, _ in DIRT.values()])
    kinds = np.searchsorted(bounds, rng.random(len(made)), side="right")
    others = rng.integers(len(repeated), size=len(made))
    names = tuple(DIRT)
    for line in np.flatnonzero(kinds < len(names)).tolist():
        name = names[int(kinds[line])]
        made[line] = DIRT[name][1](made[line], repeated[int(others[line])])
        dirt[name] += line < lines
