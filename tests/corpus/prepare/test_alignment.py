"""Alignment: a shifted side is found and located, and a sound corpus is never accused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tandem import demo
from tandem.corpus.prepare.alignment import (
    AlignmentWindow,
    LineShift,
    are_unrelated,
    describe,
    find_shift,
    windows_of_chunk,
)
from tandem.corpus.text_files import RawLine
from tests.places import CORPORA

pytestmark = pytest.mark.slow

CHUNK_LINES = 65_536
# The corpus is looked at in places a thousand lines apart, and a single place is not always clear.
NEAR = 4000

Lines = Sequence[RawLine]


@cache
def corpus(name: str) -> tuple[list[bytes], list[bytes]]:
    if name == "demo":
        pairs = demo.generate(4000).train
        return [pair.source.encode() for pair in pairs], [pair.target.encode() for pair in pairs]
    if not CORPORA.is_dir():
        pytest.skip("the real corpora in ../shared/corpora are not here")
    english, german = ((CORPORA / f"{name}.{language}").read_bytes().split(b"\n")[:-1] for language in ("en", "de"))
    return english, german


def looked_at(source: Lines, target: Lines) -> list[AlignmentWindow]:
    pairs = list(zip(source, target, strict=False))
    chunks = [(start, pairs[start : start + CHUNK_LINES]) for start in range(0, len(pairs), CHUNK_LINES)]
    return [window for start, chunk in chunks for window in windows_of_chunk(chunk, len(chunk), start + 1)]


def found_in(source: Lines, target: Lines) -> LineShift | None:
    return find_shift(looked_at(source, target))


def without(lines: Sequence[bytes], *positions: int) -> list[bytes]:
    remaining = list(lines)
    for position in sorted(positions, reverse=True):
        del remaining[position]
    return remaining


NAMES = ["demo", "multi30k/train", pytest.param("tatoeba/tatoeba", marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sound_corpora_are_not_accused(name: str) -> None:
    source, target = corpus(name)
    assert found_in(source, target) is None
    order = random.Random(1).sample(range(len(source)), len(source))
    assert found_in([source[i] for i in order], [target[i] for i in order]) is None
    assert found_in(source, source) is None


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_sound_corpora_are_not_accused(name: str) -> None:
    source, target = corpus(name)
    chance = random.Random(2)
    assert found_in(target[:4000], source[:4000]) is None
    for size in (1, 11, 80, 150, 300, 300, 1000, 1000):
        start = chance.randrange(len(source) - size)
        assert found_in(source[start : start + size], target[start : start + size]) is None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([], []),
        ([b"Hello."] * 5000, [b"Hallo."] * 5000),
        ([b"a", b"b?"] * 3000, [b"x", b"y?"] * 3000),
        ([b""] * 3000, [b""] * 3000),
        ([None, b"\xff\xfe", b"a b c"] * 500, [b"x", None, b"\xe4"] * 500),
        ([b"%d" % n for n in range(5000)], [b"%d" % n for n in range(5000)]),
        ([b"line %d." % (n // 7) for n in range(5000)], [b"Zeile %d." % (n // 7) for n in range(5000)]),
        (["第%d章。".encode() * 3 % ((n,) * 3) for n in range(3000)], [b"Chapter %d." % n for n in range(3000)]),
    ],
    ids=["nothing", "equal lines", "by turns", "empty lines", "unreadable", "numbers", "repeated", "Chinese"],
)
def test_odd_text_is_not_accused(source: Lines, target: Lines) -> None:
    assert found_in(source, target) is None
    assert found_in(target, source) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_unrelated_text_is_told_from_sound_text_and_not_called_shifted(name: str) -> None:
    source, target = corpus(name)
    assert not are_unrelated(looked_at(source, target))
    assert not are_unrelated(looked_at(target, source))
    order = random.Random(1).sample(range(len(source)), len(source))
    assert not are_unrelated(looked_at([source[i] for i in order], [target[i] for i in order]))
    shuffled = random.Random(3).sample(target, len(target))
    assert are_unrelated(looked_at(source, shuffled))
    assert found_in(source, shuffled) is None
    assert are_unrelated(looked_at([source[i] for i in order[20:]], [target[i] for i in order[:-20]]))


def test_where_nothing_can_be_told_nobody_is_accused() -> None:
    source, target = corpus("demo")
    few = 400
    assert not are_unrelated(looked_at(source[:few], random.Random(3).sample(target, few)))
    assert not are_unrelated(looked_at([b"always the same."] * 5000, [b"immer dasselbe."] * 5000))
    assert not are_unrelated([])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("share", "side"), [(0.01, 0), (0.5, 1), (0.9, 0)])
def test_a_missing_line_is_found_though_both_files_are_as_long(name: str, share: float, side: int) -> None:
    source, target = corpus(name)
    position = int(share * len(source))
    if side == 0:
        found = found_in(without(source, position), target[:-1])
    else:
        found = found_in(source[:-1], without(target, position))
    assert found is not None
    assert found.lines == (1, -1)[side]
    assert found.reaches_end
    assert abs(found.first_line - position) <= NEAR


@pytest.mark.parametrize("name", NAMES)
def test_a_line_missing_here_and_another_there(name: str) -> None:
    source, target = corpus(name)
    first, last = len(source) // 10 * 2, len(source) // 10 * 5
    found = found_in(without(source, first), without(target, last))
    assert found is not None
    assert (found.lines, found.reaches_end) == (1, False)
    assert abs(found.first_line - first) <= NEAR
    assert abs(found.last_line - last) <= NEAR


def test_the_first_of_several_shifts_is_told() -> None:
    source, target = corpus("demo")
    found = found_in(source[:-3], without(target, 1000, 2500, 2600))
    assert found is not None
    assert (found.lines, found.reaches_end) == (-1, False)
    assert abs(found.first_line - 1000) < 300
    assert abs(found.last_line - 2500) < 300


def test_how_small_a_corpus_may_be() -> None:
    source, target = corpus("demo")
    for start in range(0, 3500, 500):
        found = found_in(source[start : start + 150], target[start + 1 : start + 151])
        assert found is not None
        assert found.lines == -1
    # Fewer lines than make two windows say too little.
    assert found_in(source[:60], target[1:61]) is None


def test_a_few_lines_out_of_step_do_not_condemn_a_corpus() -> None:
    source, target = corpus("demo")
    assert found_in(without(source, 2000), without(target, 2040)) is None


def test_a_window_knows_its_lines() -> None:
    source, target = corpus("demo")
    window = windows_of_chunk(list(zip(source[:74], target[:74], strict=True)), 74, 101)[0]
    assert (window.first_line, window.last_line) == (101, 174)
    assert all(evidence < 0 for evidence in window.evidence)


def test_the_description_names_files_lines_and_remedy() -> None:
    to_end = describe(LineShift(1025, 9000, 1, reaches_end=True), Path("a.en"), Path("a.de"))
    assert "from about line 1025 on, line N of the first translates line N+1 of the second" in to_end
    assert "a line is missing in a.en or too many in a.de" in to_end
    between = describe(LineShift(1025, 9000, -2, reaches_end=False), Path("a.en"), Path("a.de"))
    assert "from about line 1025 to 9000, line N of the first translates line N-2 of the second" in between
    assert "2 lines are missing in a.de or too many in a.en" in between
