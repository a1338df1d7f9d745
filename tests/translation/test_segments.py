"""Text in sentences: nothing is lost, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.translation.segments import Segment, split_long, split_sentences


def whole(segments: list[Segment]) -> str:
    return "".join(segment.text + segment.space for segment in segments)


@given(text=st.text(alphabet="aB. \n\r\t!?'\"()\u3002\u00a0\u2028\u3000\U0001f600\u00e9", max_size=60))
def test_sentences_and_white_space_make_up_the_text(text: str) -> None:
    segments = split_sentences(text, "en")
    assert whole(segments) == text
    assert all(segment.text == segment.text.strip() for segment in segments)


@pytest.mark.parametrize("part", ["\n", "a. B\n\n", "One. Two. ", "\u00a0", "a\r\n"])
def test_long_texts_lose_nothing(part: str) -> None:
    text = part * 20_000
    assert whole(split_sentences(text, "en")) == text


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
    assert whole(parts) == text + "\n"
    assert all(len(part.text) <= 100 for part in parts)
    assert max(lengths) <= 200  # never all of a long text
