"""Cleaning rules: what each drops, under which it is counted, and files in another encoding."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.config import CorpusConfig
from tandem.corpus.prepare.cleaning_rules import KEPT, CleaningRules, check_encoding
from tandem.corpus.text_files import RawLine
from tandem.errors import TandemError

SETTINGS = CorpusConfig(max_words=3, max_ratio=4)


def verdict_on(source: RawLine, target: RawLine, settings: CorpusConfig = SETTINGS) -> str | None:
    rules = CleaningRules(settings, ("en", "de"))
    ((verdict, *_),) = rules.judge([(source, target)])
    return None if verdict == KEPT else rules.names[verdict - 1]


@pytest.mark.parametrize(
    ("source", "target", "rule"),
    [
        (b"a b c", b"x", "length_ratio"),
        (b"a b c", b"xy", None),
        (None, b"x", "long_line"),
        (b"x", None, "long_line"),
        (None, b"\xff", "long_line"),
        (b"\xe4", b"x", "broken_utf8"),
        (b"x", b"\xed\xa0\x80", "broken_utf8"),
        (b"x", b"caf\xef\xbf\xbd", "broken_utf8"),
        (b"\x00", b"\xff", "broken_utf8"),
        (b"a\x00b", b"x", "control_characters"),
        (b"x", b"a\rb", "control_characters"),
        (b"x", b"a\x1b[2J", "control_characters"),
        (b"x", "a\x85b".encode(), "control_characters"),
        (b"x", "a\u2028b".encode(), "control_characters"),
        (b"", b"\x01", "control_characters"),
        (b"a\tb", b"x y", None),
        ("a\xa0b".encode(), b"x y", None),
        ("co\xadop".encode(), b"x y", None),
        ("\u200bab".encode(), b"x y", None),
        (b"", b"x", "empty_side"),
        (b"a", b"", "empty_side"),
        (b"", b"", "empty_side"),
        (" \t\u3000\xa0".encode(), b"x", "empty_side"),
        ("\u2581 \u2581".encode(), b"x", "empty_side"),
        (b"", b"w x y z", "empty_side"),
        (b"a b c d", b"x", "too_many_words"),
        (b"a", b"w x y z", "too_many_words"),
        (b"  a   b c ", b"x y z", None),
        ("a\u3000b\xa0c\u2003d".encode(), b"x y z", "too_many_words"),
        ("ä".encode(), b"uuuu", None),
        ("ä".encode(), b"uuuuu", "length_ratio"),
        (b"Berlin", b"Berlin", "copy"),
        (b" Berlin", b"Berlin\t", "copy"),
        (b"Berlin", b"berlin", None),
    ],
)
def test_each_rule(source: RawLine, target: RawLine, rule: str | None) -> None:
    assert verdict_on(source, target) == rule


def test_only_rules_that_are_wanted_have_a_number() -> None:
    everything = CleaningRules(CorpusConfig(), ("en", "de"))
    assert everything.names == (
        "long_line",
        "broken_utf8",
        "control_characters",
        "empty_side",
        "too_many_words",
        "length_ratio",
        "copy",
        "duplicate",
    )
    assert everything.duplicate == len(everything.names)
    settings = CorpusConfig(max_ratio=None, drop_copies=False, drop_duplicates=False)
    few = CleaningRules(settings, ("en", "de"))
    assert few.names == everything.names[:5]
    assert few.duplicate is None
    assert verdict_on(b"x", b"x" * 1000, settings) is None
    assert verdict_on(b"x", b"x", settings) is None


def test_text_is_passed_on_as_it_stands_and_pairs_stream() -> None:
    lines = [(b" a  b", "ä ".encode()), (b"\xff", b"x y"), (None, b"x"), (b"c", b"d")]
    judged = CleaningRules(SETTINGS, ("en", "de")).judge(iter(lines))
    assert next(judged) == (KEPT, " a  b", "ä ", 2, 1)
    assert list(judged) == [(2, "", "x y", 0, 2), (1, "", "x", 0, 1), (KEPT, "c", "d", 1, 1)]


@given(st.text(alphabet=st.sampled_from("ab \t\xa0\u3000\u2003\xad\u200bä中"), max_size=8))
def test_words_are_what_splitting_gives(text: str) -> None:
    (judged,) = CleaningRules(CorpusConfig(), ("en", "de")).judge([(text.encode(), text.encode())])
    assert judged[1:] == (text, text, len(text.split()), len(text.split()))


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_whatever_the_bytes_there_is_a_verdict(source: bytes, target: bytes) -> None:
    rules = CleaningRules(CorpusConfig(), ("en", "de"))
    (judged,) = rules.judge([(source, target)])
    assert 0 <= judged[0] <= len(rules.names)


@pytest.mark.slow
def test_sentences_in_another_language_are_dropped_on_request() -> None:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    settings = CorpusConfig(identify_languages=True)
    english, german = b"Where is the nearest railway station?", b"Wo ist der n\xc3\xa4chste Bahnhof in dieser Stadt?"
    assert verdict_on(english, german, settings) is None
    assert verdict_on(german, german.replace(b"Wo", b"wo"), settings) == "other_language"
    assert verdict_on(english, b"O\xc3\xb9 se trouve la gare la plus proche ?", settings) == "other_language"


def test_a_file_in_another_encoding_is_refused_but_not_a_damaged_one() -> None:
    check_encoding(Path("train.de"), 0, 0)
    check_encoding(Path("train.de"), 100, 1000)
    with pytest.raises(TandemError, match=r"train\.de: 1,010 of 10,000 lines \(10%\) .*iconv -f LATIN1 -t UTF-8 train"):
        check_encoding(Path("train.de"), 1010, 10_000)
