"""Keeps the two languages apart: their names from the file names, and no split with its sides swapped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tandem.corpus.text import Pair
from tandem.errors import TandemError

Files = tuple[Path, Path]

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
# Shuffled training pairs are a sample of the language, and this many take about a second.
_TRAINING_SAMPLE = 50_000
_SPLIT_SAMPLE = 10_000


def language_of(path: Path) -> str | None:
    """The language that a file name ends in: `train.de` and `train.de.gz` are de, `train.txt` says nothing."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    language = suffix.removeprefix(".")
    return language if re.fullmatch(r"[\w-]+", language) and language.lower() not in ("txt", "text") else None


def agree_on_languages(inputs: Mapping[str, Files], given: tuple[str, str] | None) -> tuple[str, str]:
    """Source and target language of all splits; file names that contradict each other are an error."""
    train = inputs["train"]
    named = (language_of(train[0]), language_of(train[1]))
    if given is None:
        if named[0] is None or named[1] is None or named[0] == named[1]:
            raise TandemError(
                f"{train[0]} and {train[1]}: the names do not tell the two languages; "
                "name them like train.en and train.de, or give --languages, for example: --languages en de"
            )
        languages = (named[0], named[1])
    else:
        languages = given
        if languages[0] == languages[1]:
            raise TandemError(f"--languages {languages[0]} {languages[1]}: the two are alike; give each its own name")
    for split, (source, target) in inputs.items():
        found = (language_of(source), language_of(target))
        if found == languages[::-1]:
            raise TandemError(
                f"--{split} {source} {target}: the languages are swapped, {languages[0]} comes first; "
                f"swap them: --{split} {target} {source}"
            )
        # With --languages the names may be anything, as in test.src and test.ref.
        if given is None and found != languages:
            raise TandemError(
                f"--{split} {source} {target}: the names do not end in .{languages[0]} and .{languages[1]} like the "
                f"training files; give the right files, or say what all are: --languages {languages[0]} {languages[1]}"
            )
    return languages


def check_not_swapped(
    split: str, files: Files, pairs: Sequence[Pair], training_files: Files, training_pairs: Sequence[Pair]
) -> None:
    """Refuse a split whose source is clearly in the language of the training target and the other way round."""
    sources, targets = (_words(side) for side in zip(*pairs[:_SPLIT_SAMPLE], strict=True))
    wanted = sources | targets
    in_source, in_target = (_count(side, wanted) for side in zip(*training_pairs[:_TRAINING_SAMPLE], strict=True))
    if _speaks(sources, in_target, in_source) and _speaks(targets, in_source, in_target):
        raise TandemError(
            f"--{split} {files[0]} {files[1]}: {files[0]} reads like {training_files[1]} and {files[1]} like "
            f"{training_files[0]}, so the languages are swapped; check which is which and swap them: "
            f"--{split} {files[1]} {files[0]}"
        )


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in _WORD.findall(line.lower())}


def _count(lines: Iterable[str], wanted: set[str]) -> Counter[str]:
    """How often the wanted words occur, and under the empty word how many words there are."""
    counts: Counter[str] = Counter()
    for line in lines:
        words = _WORD.findall(line.lower())
        counts[""] += len(words)
        counts.update(word for word in words if word in wanted)
    return counts


def _speaks(words: set[str], language: Counter[str], other: Counter[str]) -> bool:
    """Whether nearly all words that tell the two languages apart belong to the first."""
    ours = theirs = 0
    for word in words:
        here, there = language[word] * other[""], other[word] * language[""]
        ours += here > _TELLING_RATIO * there
        theirs += there > _TELLING_RATIO * here
    return ours + theirs >= _FEWEST_WORDS and ours >= _CLEAR_SHARE * (ours + theirs)
