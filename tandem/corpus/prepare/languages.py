"""Keeps the two languages apart: their names from the file names, and no split with its sides swapped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tandem.corpus.text_files import FilePair, SentencePair, option_of
from tandem.errors import TandemError

# Scripts written without spaces (Thai to Lao, Khmer, kana, Han) count by the character, others by the word.
# Digits say nothing about a language.
_WORD = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+")

# A word tells the languages apart if it is this many times as frequent in one as in the other; names and loan words,
# which a translation keeps, are about as frequent in both.
_TELLING_RATIO = 4
# Ten different telling words a side, nine of them of the wrong language on both sides at once: one in ten thousand
# by chance if every word were a coin toss (two paraphrases of one language), never for a split in order.
_FEWEST_WORDS = 10
_CLEAR_SHARE = 0.9


def language_of(path: Path) -> str | None:
    """The language that a file name ends in: `train.de` and `train.de.gz` are de, `train.txt` says nothing."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    language = suffix.removeprefix(".")
    return language if re.fullmatch(r"[\w-]+", language) and language.lower() not in ("txt", "text") else None


def agree_on_languages(inputs: Mapping[str, Sequence[FilePair]], given: tuple[str, str] | None) -> tuple[str, str]:
    """Source and target language of all splits; file names that contradict each other are an error."""
    languages = _languages_of(inputs["train"][0]) if given is None else given
    if languages[0] == languages[1]:
        raise TandemError(f"--languages {languages[0]} {languages[1]}: the two are alike; give each its own name")
    for split, pairs in inputs.items():
        for source, target in pairs:
            found = (language_of(source), language_of(target))
            if found == languages[::-1]:
                raise TandemError(
                    f"{option_of(split)} {source} {target}: the languages are swapped, {languages[0]} comes first; "
                    f"swap them: {option_of(split)} {target} {source}"
                )
            # With --languages the names may be anything, as in test.src and test.ref.
            if given is None and found != languages:
                raise TandemError(
                    f"{option_of(split)} {source} {target}: the names do not end in .{languages[0]} and "
                    f".{languages[1]} like the training files; give the right files, or say what all are: "
                    f"--languages {languages[0]} {languages[1]}"
                )
    return languages


def _languages_of(files: FilePair) -> tuple[str, str]:
    source, target = language_of(files[0]), language_of(files[1])
    if source is None or target is None or source == target:
        raise TandemError(
            f"{files[0]} and {files[1]}: the names do not tell the two languages; "
            "name them like train.en and train.de, or give --languages, for example: --languages en de"
        )
    return source, target


class WordFrequencies:
    """How often each word occurs in a sample of the source and of the target language."""

    def __init__(self, files: FilePair, pairs: Sequence[SentencePair]) -> None:
        self.files = files
        self._source, self._target = map(Counter, _words(pairs))

    def check_not_swapped(self, split: str, files: FilePair, pairs: Sequence[SentencePair]) -> None:
        """Refuse a split whose source is clearly in the language of our target and the other way round."""
        sources, targets = map(set, _words(pairs))
        if _speaks(sources, self._target, self._source) and _speaks(targets, self._source, self._target):
            raise TandemError(
                f"{option_of(split)} {files[0]} {files[1]}: {files[0]} reads like {self.files[1]} and {files[1]} like "
                f"{self.files[0]}, so the languages are swapped; check which is which and swap them: "
                f"{option_of(split)} {files[1]} {files[0]}"
            )


def _words(pairs: Sequence[SentencePair]) -> list[list[str]]:
    return [_WORD.findall("\n".join(pair[side] for pair in pairs).lower()) for side in (0, 1)]


def _speaks(words: set[str], language: Counter[str], other: Counter[str]) -> bool:
    """Whether nearly all words that tell the two languages apart belong to the first."""
    ours = theirs = 0
    size, other_size = language.total(), other.total()
    for word in words:
        here, there = language[word] * other_size, other[word] * size
        ours += here > _TELLING_RATIO * there
        theirs += there > _TELLING_RATIO * here
    return ours + theirs >= _FEWEST_WORDS and ours >= _CLEAR_SHARE * (ours + theirs)
