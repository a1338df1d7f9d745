"""Text cut into sentences and parts: nothing is lost, nothing is too long."""

from __future__ import annotations

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


@given(st.text(max_size=200))
def test_no_character_is_lost(text: str) -> None:
    segments = split_sentences(text, "en")
    assert joined(segments) == text
    assert all(segment.text == segment.text.strip() for segment in segments)


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
