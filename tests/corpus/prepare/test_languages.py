"""Languages: their names, and splits with their sides swapped, by name and by content."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tandem.corpus.prepare.languages import WordFrequencies, agree_on_languages, language_of
from tandem.errors import TandemError

Pairs = list[tuple[str, str]]

TRAIN = (Path("train.xx"), Path("train.yy"))
DEV = (Path("dev.xx"), Path("dev.yy"))


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("train.en", "en"),
        ("train.en.gz", "en"),
        ("a.b/train.tok.pt-BR.gz", "pt-BR"),
        ("train.zh_Hans", "zh_Hans"),
        ("train", None),
        ("train.gz", None),
        ("train.txt", None),
        ("train.txt.gz", None),
        (".en", None),
        ("63", None),
    ],
)
def test_language_of(name: str, language: str | None) -> None:
    assert language_of(Path(name)) == language


Inputs = dict[str, list[tuple[Path, Path]]]


def _inputs(**names: str) -> Inputs:
    """The pairs of files of each split; a comma divides pairs."""
    return {
        split: [(Path(both.split()[0]), Path(both.split()[1])) for both in pairs.split(",")]
        for split, pairs in names.items()
    }


@pytest.mark.parametrize(
    ("inputs", "given", "languages"),
    [
        (_inputs(train="t.en t.de.gz", dev="d.en.gz d.de", test="x.en x.de"), None, ("en", "de")),
        (_inputs(train="t.en t.de, u.en u.de", dev="d.en d.de"), None, ("en", "de")),
        (_inputs(train="en.txt de.txt", dev="a.txt b.txt"), ("en", "de"), ("en", "de")),
        (_inputs(train="t.src t.ref", dev="t.source t.target"), ("en", "de"), ("en", "de")),
        (_inputs(train="t.en t.de", dev="d.en d.de"), ("eng", "deu"), ("eng", "deu")),
    ],
)
def test_names_agree(inputs: Inputs, given: tuple[str, str] | None, languages: tuple[str, str]) -> None:
    assert agree_on_languages(inputs, given) == languages


@pytest.mark.parametrize(
    ("inputs", "given", "message"),
    [
        (_inputs(train="t.txt u.txt", dev="d.en d.de"), None, r"t\.txt and u\.txt: .*--languages en de"),
        (_inputs(train="t.en u.en", dev="d.en d.de"), None, r"t\.en and u\.en: .*--languages en de"),
        (_inputs(train="t.en t", dev="d.en d.de"), None, r"t\.en and t: .*--languages"),
        (_inputs(train="t.en t.de, u.de u.en", dev="d.en d.de"), None, r"swap them: --train u\.en u\.de"),
        (_inputs(train="t.en t.de", dev="d.de d.en"), None, r"--dev d\.de d\.en: .*swap them: --dev d\.en d\.de"),
        (_inputs(train="t.en t.de", dev="d.en d.de", test="x.de x.en"), None, r"swap them: --test x\.en x\.de"),
        (_inputs(train="t.de t.en", dev="d.en d.de"), ("en", "de"), r"swap them: --train t\.en t\.de"),
        (_inputs(train="t.en t.de", dev="d.en d.fr"), None, r"--dev d\.en d\.fr: .*\.en and \.de.*--languages en de"),
        (_inputs(train="t.en t.de", dev="d.txt e.txt"), None, r"--dev d\.txt e\.txt: .*--languages en de"),
        (_inputs(train="t.a t.b", dev="d.a d.b"), ("en", "en"), "--languages en en: the two are alike"),
    ],
)
def test_names_that_disagree(inputs: Inputs, given: tuple[str, str] | None, message: str) -> None:
    with pytest.raises(TandemError, match=message):
        agree_on_languages(inputs, given)


def _swap(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


def test_swapped_contents_are_seen(sentences: Pairs) -> None:
    WordFrequencies(TRAIN, sentences).check_not_swapped("dev", DEV, sentences[3::5])
    with pytest.raises(
        TandemError, match=r"--dev dev\.xx dev\.yy: dev\.xx reads like train\.yy.*--dev dev\.yy dev\.xx"
    ):
        WordFrequencies(TRAIN, sentences).check_not_swapped("dev", DEV, _swap(sentences[3::5]))


def test_scripts_without_spaces_are_seen() -> None:
    train = [("the cat sleeps on a mat", "猫在垫子上睡觉"), ("dogs run over green hills", "狗跑过绿色的山丘")]
    with pytest.raises(TandemError, match="swapped"):
        WordFrequencies(TRAIN, train).check_not_swapped("test", DEV, _swap(train))
    WordFrequencies(TRAIN, train).check_not_swapped("test", DEV, train)


def test_too_few_words_say_nothing(sentences: Pairs) -> None:
    WordFrequencies(TRAIN, sentences).check_not_swapped("dev", DEV, _swap(sentences[:1]))
    WordFrequencies(TRAIN, sentences).check_not_swapped("dev", DEV, [("", ""), ("1 2 3 !", "4 , _ 5")])


def test_one_foreign_side_is_not_a_swap(sentences: Pairs) -> None:
    german = [(target, target) for _, target in sentences]
    WordFrequencies(TRAIN, sentences).check_not_swapped("dev", DEV, german)


def test_names_and_numbers_kept_by_the_translation_do_not_hide_a_swap(sentences: Pairs) -> None:
    names = [f"Name{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(100)]
    train = [*sentences, *((name, name) for name in names)]
    with pytest.raises(TandemError, match="swapped"):
        WordFrequencies(TRAIN, train).check_not_swapped("dev", DEV, _swap(train))


@pytest.mark.parametrize("seed", range(20))
def test_one_language_on_both_sides_never_looks_swapped(seed: int) -> None:
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefgh", k=5)) for _ in range(300)]

    def sentence() -> str:
        return " ".join(generator.choices(words, k=8))

    paraphrases = [(sentence(), sentence()) for _ in range(30)]
    WordFrequencies(TRAIN, paraphrases).check_not_swapped("dev", DEV, [(sentence(), sentence()) for _ in range(10)])
    copies = [(source, source) for source, _ in paraphrases]
    WordFrequencies(TRAIN, copies).check_not_swapped("dev", DEV, [(sentence(), sentence()) for _ in range(10)])
    reversals = [(source, " ".join(reversed(source.split()))) for source, _ in paraphrases]
    WordFrequencies(TRAIN, reversals).check_not_swapped("dev", DEV, _swap(reversals))
