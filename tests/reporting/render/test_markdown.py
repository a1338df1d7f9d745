"""The Markdown says the same as the page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandem.reporting.answers import Evaluation
from tandem.reporting.render.markdown import render_markdown
from tests.reporting.render.sample import sample_report


def test_everything_but_the_charts() -> None:
    report = sample_report()
    text = render_markdown(report)
    for number, answer in enumerate(report.questions, 1):
        assert f"\n## {number}. {answer.question}\n" in text
        assert answer.answer in text
    assert "\n| 5 | Network | bottleneck | high |\n" in text
    assert "\n**not bottleneck**" not in text
    assert "\n| Wall | 19 h 12 min |\n" in text
    assert "<br>optimizer.safetensors, 488.2 MB, Adam's two means of each weight<br>" in text
    assert text.index("- Base Transformer") < text.index("## Problems") < text.index("## 1.")


def test_evaluations_are_a_table() -> None:
    evaluation = Evaluation(at=500, loss=1.5, perplexity=None, bleu=30.25, bleu_first_sentences=None, best=())
    text = render_markdown(replace(sample_report(), evaluations=(evaluation,)))
    assert "\n| step | loss | BLEU |  |\n|--:|--:|--:|--:|\n| 500 | 1.500 | 30.25 |  |\n" in text


@pytest.mark.parametrize(
    ("words", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("<b>bold</b>", r"\<b\>bold\</b\>"),
        ("*one* and [two](x)", r"\*one\* and \[two\](x)"),
        ("rank_0 and _this_", r"rank_0 and \_this\_"),
        ("costs $12, not $24", r"costs \$12, not \$24"),
        ("# no heading", r"\# no heading"),
        ("1. no list", r"1\. no list"),
        ("1.8 s a step", "1.8 s a step"),
        ("two\n\nlines", "two lines"),
        ("use `tandem train | tee *`", r"use `tandem train \| tee *`"),
        ("one ` alone", r"one \` alone"),
    ],
)
def test_words_stay_words(words: str, escaped: str) -> None:
    assert f"\n- {escaped}\n" in render_markdown(replace(sample_report(), summary=(words,)))
