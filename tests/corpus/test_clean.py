"""Cleaning rules: what they drop, and that each drop is counted once."""

from __future__ import annotations

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.clean import Cleaner, Rule, cleaning_rules


@pytest.mark.parametrize(
    ("source", "target", "rule"),
    [
        ("a b c", "x", None),
        ("a", "x y z", None),
        ("", "x", "empty_side"),
        ("a", "", "empty_side"),
        ("", "", "empty_side"),
        (" \t\u3000\xa0", "x", "empty_side"),
        ("\u2581 \u2581", "x", "empty_side"),
        ("a b c d", "x", "too_many_words"),
        ("a", "w x y z", "too_many_words"),
        ("", "w x y z", "empty_side"),
        ("\u200b", "x", None),
    ],
)
def test_each_rule(source: str, target: str, rule: str | None) -> None:
    cleaner = Cleaner(cleaning_rules(CorpusConfig(max_words=3)))
    kept = list(cleaner.clean([(source, target)]))
    assert kept == ([] if rule else [(source, target)])
    assert cleaner.dropped == {name: int(name == rule) for name in ("empty_side", "too_many_words")}


def test_a_pair_counts_under_its_first_rule_and_pairs_stream() -> None:
    rules = (Rule("long", lambda s, t: len(s) > 1), Rule("same", lambda s, t: s == t))
    cleaner = Cleaner(rules)
    stream = cleaner.clean(iter([("a", "b"), ("aa", "aa"), ("a", "a"), ("c", "d")]))
    assert next(stream) == ("a", "b")
    assert cleaner.dropped == {"long": 0, "same": 0}
    assert list(stream) == [("c", "d")]
    assert cleaner.dropped == {"long": 1, "same": 1}
