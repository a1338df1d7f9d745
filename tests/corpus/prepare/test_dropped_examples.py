"""Examples of what the rules dropped: which are chosen, and what a person sees of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.cleaning_rules import CleaningRules
from tandem.corpus.prepare.dropped_examples import DroppedExample, JudgedFiles, explain, explain_lines
from tandem.corpus.text_files import RawLine

Pairs = Sequence[tuple[RawLine, RawLine]]


def judged(rules: CleaningRules, pairs: Pairs, stem: str = "train") -> JudgedFiles:
    verdicts = np.array([verdict for verdict, *_ in rules.judge(pairs)], dtype=np.uint8)
    files = (Path(f"{stem}.en"), Path(f"{stem}.de"))
    return JudgedFiles(files, verdicts, lambda lines: [pairs[line] for line in lines])


def only_example(source: RawLine, target: RawLine, settings: CorpusConfig | None = None) -> tuple[str, DroppedExample]:
    rules = CleaningRules(settings or CorpusConfig(max_words=5), ("en", "de"))
    examples = explain(rules, [judged(rules, [(b"good", b"gut"), (source, target)])], 3)
    ((name, (example,)),) = ((name, found) for name, found in examples.items() if found)
    assert example.line == 2
    return name, example


@pytest.mark.parametrize(
    ("source", "target", "rule", "why"),
    [
        (None, b"x", "long_line", "source: longer than 1,048,576 bytes, which is no sentence"),
        (b"x", b"Caf\xe9", "broken_utf8", "target: not UTF-8, byte 4 is 0xe9"),
        ("Caf\ufffd".encode(), b"x", "broken_utf8", "source: holds U+FFFD, which earlier damage leaves"),
        (b"x", b"a\x1bb", "control_characters", "target: character 2 is U+001B"),
        (b" ", b"", "empty_side", "source: empty, target: empty"),
        (b"x", b"a b c d e f", "too_many_words", "source: 1 words, target: 6 words"),
        (b"xx", b"y" * 24, "length_ratio", "target 12.0 times as long, in characters"),
        (b"y" * 25, b"xx", "length_ratio", "source 12.5 times as long, in characters"),
        (b"same", b"same ", "copy", "target is the source again"),
    ],
)
def test_why(source: RawLine, target: RawLine, rule: str, why: str) -> None:
    name, example = only_example(source, target)
    assert (name, example.why) == (rule, why)


def test_why_it_is_another_language() -> None:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    french = "La commission se réunira de nouveau jeudi.".encode()
    _, example = only_example(
        b"The committee will meet again on Thursday.", french, CorpusConfig(identify_languages=True)
    )
    assert example.why == "source: reads like en, target: reads like fr"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (b"a\x1b[31mb\x00", "a\\x1b[31mb\\x00"),
        ("a\u2028b\xa0c\x01".encode(), "a\\u2028b\\xa0c\\x01"),
        (b"Caf\xe9 au lait", "Caf\\xe9 au lait"),
        (b"w" * 100 + b"\x07" + b"v" * 1000, "…" + "w" * 20 + "\\x07" + "v" * 379 + "…"),
        (b"w" * 100 + b"\xe9", "…" + "w" * 20 + "\\xe9"),
    ],
)
def test_what_a_terminal_would_not_show_is_written_out(line: bytes, seen: str) -> None:
    assert only_example(b"x", line)[1].target == seen


def test_examples_are_spread_over_all_files_and_stay_the_same() -> None:
    rules = CleaningRules(CorpusConfig(), ("en", "de"))
    parts = [
        judged(rules, [(b"", b"x"), (b"a", b"b")] * 50, "one"),
        judged(rules, [(b"a", b"b")] * 10, "none"),
        judged(rules, [(b"c", b"c"), (b"", b"x")] * 50, "two"),
    ]
    examples = explain(rules, parts, 4)
    assert examples == explain(rules, parts, 4)
    assert [(e.source_file, e.line) for e in examples["empty_side"]] == [
        ("one.en", 25),
        ("one.en", 75),
        ("two.en", 26),
        ("two.en", 76),
    ]
    assert [e.line for e in examples["copy"]] == [13, 37, 63, 87]
    assert len(explain(rules, parts, 1000)["copy"]) == 50
    assert not any(explain(rules, parts, 0).values())
    assert not any(explain(rules, [], 3).values())


def test_duplicates_are_told_by_their_verdict_alone() -> None:
    rules = CleaningRules(CorpusConfig(), ("en", "de"))
    part = judged(rules, [(b"a", b"b"), (b"a", b"b")])
    assert rules.duplicate is not None
    part.verdicts[1] = rules.duplicate
    (example,) = explain(rules, [part], 3)["duplicate"]
    assert (example.line, example.why) == (2, "an equal pair came before")


def test_lines_fit_the_terminal_and_the_same_goes_out_as_json() -> None:
    rules = CleaningRules(CorpusConfig(max_words=4), ("en", "ja"))
    examples = explain(rules, [judged(rules, [(b"one two three four five six", "長い文です。".encode() * 5)])], 2)
    lines = list(explain_lines(examples, 30))
    start = lines.index("too many words:")
    assert lines[start + 1 : start + 5] == [
        "  train.en:1 train.de:1",
        "    source: 6 words, target:…",
        "    > one two three four five…",
        "    > 長い文です。長い文です…",
    ]
    assert "copy: nothing" in lines
    written = json.loads(json.dumps({name: [e.model_dump() for e in found] for name, found in examples.items()}))
    assert written["too_many_words"][0]["line"] == 1
