"""Metrics by name, and what makes one value better than another."""

from __future__ import annotations

import math

import pytest

from tandem.metrics import BY_DEV_BLEU, METRICS, Criterion, metric_label, metric_name
from tandem.scoring import make_scorer


@pytest.mark.parametrize(
    ("text", "dev_set", "metric", "label"),
    [
        ("bleu", "dev", "bleu", "dev BLEU"),
        ("loss", "dev", "loss", "dev loss"),
        ("news-2019/chrf", "news-2019", "chrf", "news-2019 chrF2"),
    ],
)
def test_a_criterion_is_a_metric_on_dev_or_on_a_named_set(text: str, dev_set: str, metric: str, label: str) -> None:
    criterion = Criterion.parse(text)
    assert (criterion.dev_set, criterion.metric, criterion.label) == (dev_set, metric, label)
    assert Criterion.parse(str(criterion)) == criterion


@pytest.mark.parametrize("text", ["", "/bleu", "dev/", "BLEU", "dev/bluh", "perplexity"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one of loss, bleu, chrf, ter"):
        Criterion.parse(text)


@pytest.mark.parametrize(
    ("criterion", "better", "worse"), [("bleu", 2.0, 1.0), ("loss", 1.0, 2.0), ("ter", 40.0, 50.0), ("chrf", 2.0, 1.0)]
)
def test_of_some_metrics_less_is_better(criterion: str, better: float, worse: float) -> None:
    rank = Criterion.parse(criterion).rank
    assert rank(better) > rank(worse) > rank(None)
    assert rank(math.nan) == rank(None)


def test_whole_dev_sets_come_before_their_first_sentences_but_for_the_loss_which_is_always_whole() -> None:
    assert Criterion.parse("ter").rank(100.0) > Criterion.parse("ter").rank(95.0, whole=False)
    assert Criterion.parse("loss").rank(2.0, whole=False) > Criterion.parse("loss").rank(3.0)


def test_every_metric_has_a_scorer_and_a_label() -> None:
    for name in METRICS:
        if name != "bleu_lc_tok":  # which is an extra
            assert make_scorer(metric_name(name)).metric is not None
        assert metric_label(name) != name
    assert metric_label("of a later version") == "of a later version"
    assert str(BY_DEV_BLEU) == "dev/bleu"
