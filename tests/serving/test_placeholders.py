"""Placeholders stay literally, whatever the model makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.serving.placeholders import find_placeholders, is_kept, locate, stretches
from tests.serving.servers import RunningServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi {name}, {0:.2f} {} {{ x }} ${y}", ["{name}", "{0:.2f}", "{}", "{{ x }}", "${y}"]),
        ("%s and %d of %(total)d, %1$s %.2f %%", ["%s", "%d", "%(total)d", "%1$s", "%.2f"]),
        ("100 % sure, 5%of it", []),
        ("see https://a.example/b?c=d, (http://x.example/y).", ["https://a.example/b?c=d", "http://x.example/y"]),
        ("write to a.b+c@d.example.org.", ["a.b+c@d.example.org"]),
        ("[X0X]bold[X12X]", ["[X0X]", "[X12X]"]),
        ("a { b } c", []),
    ],
)
def test_placeholders_are_found(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in find_placeholders(text)] == expected


@given(text=st.text(alphabet="ab {}%s$()[X1].@/:h\n", max_size=60))
def test_stretches_make_up_the_text(text: str) -> None:
    spans = find_placeholders(text)
    assert "".join(part.text for part in stretches(text, spans)) == text
    assert is_kept(text, spans) == all(part.kept for part in stretches(text, spans))


def test_a_lost_or_doubled_placeholder_is_noticed() -> None:
    assert locate(["{a}", "{{a}}"], "{{a}} und {a}") == [(10, 13), (0, 5)]
    assert locate(["{a}", "{a}"], "{a} und {a}") == [(0, 3), (8, 11)]
    assert locate(["{a}"], "nichts") is None
    assert locate(["{a}"], "{a}{a}") is None
    assert locate(["bob"], "bobby") is None
    assert locate([], "etwas") == []


@pytest.mark.parametrize("form", ["text", "html"])
def test_placeholders_survive_a_model_that_has_never_seen_them(server: RunningServer, form: str) -> None:
    marks = ["{name}", "%(count)d", "${total}", "https://a.example/b?c=1", "me@a.example", "[X1X]", "%s"]
    text = f"I see {marks[0]} and {marks[1]} dogs. {marks[2]} is at {marks[3]}, {marks[4]}; {marks[5]}book {marks[6]}!"
    translated = server.translate(text, format=form)["translatedText"]
    assert [translated.count(mark) for mark in marks] == [1] * len(marks)


@pytest.mark.parametrize("text", ["{name}", "https://a.example/", "... !", "  ", "{a}: {b} - %s", "[X0X]"])
def test_what_has_no_word_stays_as_it_is(server: RunningServer, text: str) -> None:
    assert server.translate(text)["translatedText"] == text
