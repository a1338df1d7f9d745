"""Text cut into sentences and parts: nothing is lost, nothing is too long."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.translation.segments import Segment, split_long, split_sentences

WORDS = "A man sleeps; his dog, which is old, sleeps, too"


def joined(segments: list[Segment]) -> str:
    return "".join(segment.text + segment.space for segment in segments)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A man sleeps. His dog sleeps, too.", ["A man sleeps.", "His dog sleeps, too."]),
        ("Mr. Smith came at 3.5 p.m. yesterday. He left!", ["Mr. Smith came at 3.5 p.m. yesterday.", "He left!"]),
        ("One.\n\nTwo? Three.", ["One.", "Two?", "Three."]),
        ("no end", ["no end"]),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    segments = split_sentences(text, "en")
    assert [segment.text for segment in segments if segment.text] == sentences
    assert joined(segments) == text


@given(st.text(alphabet="ab ,;.\n", max_size=80), st.integers(1, 12))
def test_parts_fit_and_make_up_the_whole(text: str, longest: int) -> None:
    parts = list(split_long(Segment(text.strip(), " "), lambda part: len(part) <= longest))
    assert joined(parts) == text.strip() + " "
    assert all(len(part.text) <= longest for part in parts)


@pytest.mark.parametrize(
    ("longest", "parts"),
    [
        (99, [WORDS]),
        (30, ["A man sleeps; his dog,", "which is old, sleeps, too"]),
        (9, ["A man", "sleeps;", "his dog,", "which is", "old,", "sleeps,", "too"]),
        (4, ["A", "man", "slee", "ps;", "his", "dog,", "whic", "h is", "old,", "slee", "ps,", "too"]),
    ],
)
def test_a_long_sentence_is_cut_between_clauses_then_words_then_characters(longest: int, parts: list[str]) -> None:
    cut = split_long(Segment(WORDS, ""), lambda part: len(part) <= longest)
    assert [part.text for part in cut] == parts


def test_a_character_that_does_not_fit_is_a_part_of_its_own() -> None:
    assert [part.text for part in split_long(Segment("abc", ""), lambda part: part == "")] == ["a", "b", "c", ""]


@given(text=st.text(alphabet="aB. \n\r\t!?'\"()\u3002\u00a0\u2028\u3000\U0001f600\u00e9", max_size=60))
def test_sentences_and_white_space_make_up_the_text(text: str) -> None:
    segments = split_sentences(text, "en")
    assert joined(segments) == text
    assert all(segment.text == segment.text.strip() for segment in segments)


@pytest.mark.parametrize("part", ["\n", "a. B\n\n", "One. Two. ", "\u00a0", "a\r\n"])
def test_long_texts_lose_nothing(part: str) -> None:
    text = part * 20_000
    assert joined(split_sentences(text, "en")) == text


# Each takes minutes if white space or marks are looked at from every place up to their end.
@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 100_000 + "b",
        "a." + " " * 100_000 + "B",
        " " * 100_000 + "a" + "\t" * 100_000,
        "a" + "\u00a0 " * 50_000 + "b",
        ("a" + " " * 1_000) * 100,
        "\x1c\x1f a \x1d" * 20_000,
        "x" * 100_000,
        "a" + "." * 100_000 + "b",
        '"' * 100_000,
        "Mr. " * 25_000,
    ],
    ids=range(10),
)
def test_long_runs_in_one_line_are_read_through_once(text: str) -> None:
    segments = split_sentences(text, "en")
    assert joined(segments) == text
    assert all(segment.text == segment.text.strip() for segment in segments)


@pytest.mark.parametrize("gap", [" " * 100_000, "," * 100_000, ", " * 50_000])
def test_long_runs_are_cut_into_parts_that_fit(gap: str) -> None:
    text = f"a{gap}b"
    parts = list(split_long(Segment(text, ""), lambda part: len(part) <= 100))
    assert joined(parts) == text
    assert all(len(part.text) <= 100 for part in parts)


def test_white_space_is_the_same_to_patterns_and_to_strip() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    assert [each for each in characters if each.isspace()] == re.findall(r"\s", "".join(characters))


def test_a_line_ends_a_sentence() -> None:
    found = split_sentences("One\nTwo three. Four.\r\n\r\nFive", "en")
    assert [(segment.text, segment.space) for segment in found] == [
        ("One", "\n"),
        ("Two three.", " "),
        ("Four.", "\r\n\r\n"),
        ("Five", ""),
    ]


@pytest.mark.parametrize("text", ["word " * 5_000 + "end", "x" * 20_000, "one, two; " * 2_000 + "end"])
def test_what_is_too_long_is_cut_into_parts_that_fit(text: str) -> None:
    lengths: list[int] = []

    def fits(part: str) -> bool:
        lengths.append(len(part))
        return len(part) <= 100

    parts = list(split_long(Segment(text, "\n"), fits))
    assert joined(parts) == text + "\n"
    assert all(len(part.text) <= 100 for part in parts)
    assert max(lengths) <= 200  # never all of a long text
