"""Differences in words that a person understands and a statistician would sign."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandem.comparing.comparison import Group, MetricDifference, Verdict
from tandem.comparing.seed_spread import compare_groups
from tandem.comparing.verdict_words import chance, difference_words, headline, judge

OLD, NEW = Group(name="old", members=("old",)), Group(name="new", members=("new",))
OLDS, NEWS = (Group(name=name, members=(f"{name}-1", f"{name}-2"), seeds=(1, 2)) for name in ("old", "new"))
SENTENCES = 1000


def bleu(verdict: Verdict, difference: float, p: float, p_bootstrap: float | None = None) -> MetricDifference:
    return MetricDifference(
        metric="BLEU",
        difference=difference,
        low=difference - 0.5,
        high=difference + 0.5,
        p_bootstrap=p if p_bootstrap is None else p_bootstrap,
        p_randomisation=p,
        seeds=None,
        lower_is_better=False,
        signature="",
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("difference", "p_values", "lower", "alike", "verdict"),
    [
        (0.6, [0.01, 0.02], False, False, "better"),
        (-0.6, [0.01, 0.02], False, False, "worse"),
        (-0.6, [0.01, 0.02], True, False, "better"),
        (0.6, [0.01, 0.02], True, False, "worse"),
        (0.6, [0.01, 0.06], False, False, "unclear"),
        (0.0, [1.0, 1.0], False, True, "same"),
    ],
)
def test_all_tests_must_agree(
    difference: float, p_values: list[float], lower: bool, alike: bool, verdict: Verdict
) -> None:
    assert judge(difference, p_values, lower_is_better=lower, alike=alike) == verdict


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            bleu("better", 0.62, 0.0031),
            "BLEU: new is better by 0.62, 95 % between +0.12 and +1.12; so large a difference would come by chance in "
            "3 of 1,000 cases.",
        ),
        (
            bleu("worse", -0.62, 0.0001),
            "BLEU: new is worse by 0.62, 95 % between −1.12 and −0.12; so large a difference would come by chance in "  # noqa: RUF001
            "fewer than 1 of 1,000 cases.",
        ),
        (
            bleu("unclear", 0.12, 0.612),
            "BLEU: these 1,000 sentences cannot tell them apart; so large a difference comes by chance in 612 of 1,000 "
            "cases. The difference is +0.12, 95 % between −0.38 and +0.62.",  # noqa: RUF001
        ),
        (
            bleu("unclear", 0.45, 0.04, p_bootstrap=0.06),
            "BLEU: not settled, the two tests disagree (p 0.040 by randomisation, 0.060 by bootstrap). The difference "
            "is +0.45, 95 % between −0.05 and +0.95.",  # noqa: RUF001
        ),
        (bleu("same", 0, 1), "BLEU: no difference, old and new translate every sentence alike."),
        (
            replace(bleu("better", -2.5, 0.02), metric="TER", lower_is_better=True),
            "TER: new is better by 2.50 (lower is better), 95 % between −3.00 and −2.00; so large a difference would "  # noqa: RUF001
            "come by chance in 20 of 1,000 cases.",
        ),
    ],
)
def test_a_difference_in_words(found: MetricDifference, words: str) -> None:
    assert difference_words(found, OLD, NEW, SENTENCES) == words


def test_groups_are_judged_by_their_seeds() -> None:
    few = replace(bleu("unclear", 0.8, 0.001), p_randomisation=None, seeds=compare_groups([30.0, 30.4], [30.9, 31.1]))
    assert difference_words(few, OLDS, NEWS, SENTENCES) == (
        "BLEU: seeds spread by 0.22 (standard deviation), and with so few runs only a difference above 0.96 could be "
        "told from that; so large a one comes by chance in 70 of 1,000 cases. The difference is +0.80, 95 % by "
        "sentences between +0.30 and +1.30."
    )
    clear = replace(few, verdict="better", difference=3.0, seeds=compare_groups([30.0, 30.4], [33.1, 33.3]))
    assert difference_words(clear, OLDS, NEWS, SENTENCES) == (
        "BLEU: new (2 seeds) is on average better by 3.00, 95 % by sentences between +0.30 and +1.30; so large a "
        "difference would come by chance in 6 of 1,000 cases, with seeds that spread by 0.22 (standard deviation)."
    )


@pytest.mark.parametrize(
    ("verdicts", "verdict", "words"),
    [
        (("better", "better"), "better", "new is better than old by BLEU and chrF2 (BLEU +1.00, chrF2 +1.00)."),
        (
            ("worse", "unclear"),
            "worse",
            "new is worse than old by BLEU; chrF2 cannot tell them apart (BLEU +1.00, chrF2 +1.00).",
        ),
        (
            ("better", "worse"),
            "unclear",
            "new is better than old by BLEU and worse by chrF2: the metrics disagree (BLEU +1.00, chrF2 +1.00).",
        ),
        (
            ("unclear", "unclear"),
            "unclear",
            "These 1,000 sentences cannot tell new and old apart (BLEU +1.00, chrF2 +1.00).",
        ),
        (("same", "same"), "same", "old and new translate all 1,000 sentences alike."),
    ],
)
def test_the_headline(verdicts: tuple[Verdict, Verdict], verdict: Verdict, words: str) -> None:
    found = [
        replace(bleu(each, 1.0, 0.01), metric=name) for each, name in zip(verdicts, ("BLEU", "chrF2"), strict=True)
    ]
    assert headline(OLD, NEW, found, SENTENCES) == (verdict, words)


def test_chance_in_whole_cases() -> None:
    assert chance(0.0004).endswith("in fewer than 1 of 1,000 cases")
    assert chance(0.0006).endswith("in 1 of 1,000 cases")
