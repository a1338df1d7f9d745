"""Holding pairs out of the training text: no source sentence on two sides, nothing lost, partners stay together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.corpus.fetch.holdout import HeldOut, UndividedText, hold_out
from tandem.corpus.text_files import BOM, LONGEST_LINE, FilePair
from tandem.errors import TandemError

Pairs = list[tuple[bytes, bytes]]


def divided(directory: Path, dev: int, test: int, *texts: Pairs) -> tuple[list[Pairs], Pairs, Pairs]:
    """The pairs in train, dev and test."""

    def files(stem: str) -> FilePair:
        return directory / f"{stem}.en", directory / f"{stem}.de"

    def read(stem: str) -> Pairs:
        source, target = (path.read_bytes().split(b"\n")[:-1] for path in files(stem))
        return list(zip(source, target, strict=True))

    directory.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        for side, path in enumerate(files(f"all-{number}")):
            path.write_bytes(b"".join(pair[side] + b"\n" for pair in text))
    hold_out(
        [UndividedText(files(f"all-{n}"), ("a.en", "a.de"), files(f"rest-{n}")) for n in range(len(texts))],
        {"dev": HeldOut(dev, files("dev")), "test": HeldOut(test, files("test"))},
    )
    return [read(f"rest-{number}") for number in range(len(texts))], read("dev"), read("test")


@settings(max_examples=15)
@given(
    sentences=st.lists(st.integers(0, 60), min_size=60, max_size=120),
    dev=st.integers(1, 12),
    test=st.integers(1, 12),
    cut=st.integers(1, 59),
)
def test_no_sentence_is_on_two_sides(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[int], dev: int, test: int, cut: int
) -> None:
    sentences = sentences + list(range(100, 130))  # some that have one translation
    text = [(b"sentence %d" % number, b"translation %d" % index) for index, number in enumerate(sentences)]
    directory = tmp_path_factory.getbasetemp() / "divided"
    train, held, exam = divided(directory, dev, test, text[:cut], text[cut:])
    everything = [*train[0], *train[1], *held, *exam]
    assert Counter(everything) == Counter(text)
    assert 0 < len(held) <= dev
    assert 0 < len(exam) <= test
    sides = [{source for source, _ in side} for side in ([*train[0], *train[1]], held, exam)]
    assert sum(map(len, sides)) == len(set(sentences))
    assert [pair for pair in text[:cut] if pair in train[0]] == train[0]  # in the order of the input


def test_what_is_held_out_does_not_depend_on_the_order_or_the_files(tmp_path: Path) -> None:
    text = [(b"sentence %d" % number, b"translation %d" % number) for number in range(200)]
    _, *first = divided(tmp_path / "one", 10, 20, text)
    _, *second = divided(tmp_path / "two", 10, 20, text[:150:-1], text[150::-1])
    assert [sorted(side) for side in first] == [sorted(side) for side in second]
    assert [len(side) for side in first] == [10, 20]


def test_odd_lines_stay_in_training_and_aligned(tmp_path: Path) -> None:
    odd: Pairs = [
        (BOM + b"first", b"erste"),
        (b"", b"leer"),
        (b"nul \0", b"null"),
        (b"not UTF-8 \xff", b"kein"),
        (b"long", b"x" * (LONGEST_LINE + 100)),
        (b"y" * (LONGEST_LINE + 1), b"lang"),
        (b"several", b"gut"),
        (b"several", b"nicht gut \xff"),
    ]
    text = [(b"%ssentence %d\r" % (space, number), b"Satz\r") for number in range(20) for space in (b"", b" ")]
    (train,), dev, test = divided(tmp_path / "odd", 10, 3, [*odd, *text])
    sides = [{source.strip() for source, _ in side} for side in (train, dev, test)]
    assert sides[1] | sides[2] <= {b"first", *(source.strip() for source, _ in text)}
    assert b"first" in sides[0] | sides[1] | sides[2]
    assert not sides[0] & (sides[1] | sides[2])
    found = dict(train)
    assert [found[source] for source, _ in odd[1:4]] == [target for _, target in odd[1:4]]
    assert len(found[b"long"]) == LONGEST_LINE + 1  # still too long, and no more than shows it
    assert [target for source, target in train if len(source) == LONGEST_LINE + 1] == [b"lang"]
    assert [target for source, target in train if source == b"several"] == [b"gut", b"nicht gut \xff"]
    assert len(train) + len(dev) + len(test) == len(odd) + len(text)


def test_too_few_pairs_to_hold_out(tmp_path: Path) -> None:
    text = [(b"sentence %d" % number, b"translation %d" % number) for number in range(20)]
    with pytest.raises(
        TandemError, match=r"^20 training pairs: too few to hold out 2000 for dev and 5 for test; lower"
    ):
        divided(tmp_path, 2000, 5, text)
    assert {path.name for path in tmp_path.iterdir()} == {"all-0.en", "all-0.de"}


@pytest.mark.parametrize("missing", ["source", "target"])
def test_texts_of_unequal_length_are_not_divided(tmp_path: Path, missing: str) -> None:
    files = tmp_path / "a.1", tmp_path / "a.2"
    for path, count in zip(files, (19, 22) if missing == "source" else (22, 19), strict=True):
        path.write_bytes(b"line\n" * (count - 1) + b"the last line has no end")
    rest, dev = (tmp_path / "rest.1", tmp_path / "rest.2"), (tmp_path / "dev.1", tmp_path / "dev.2")
    counts = "x has 19 lines but y has 22" if missing == "source" else "x has 22 lines but y has 19"
    with pytest.raises(TandemError, match=f"^{counts}; line N of one must translate line N of the other"):
        hold_out([UndividedText(files, ("x", "y"), rest)], {"dev": HeldOut(1, dev)})
