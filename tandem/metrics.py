"""Metrics of quality by the names that settings and records know them by, and what makes one checkpoint the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

DEV = "dev"
"""The dev set that every corpus has."""
LOSS, BLEU = "loss", "bleu"


@dataclass(frozen=True)
class MetricFacts:
    """What there is to know of a metric without computing it."""

    label: str
    """How people write it."""
    lower_is_better: bool = False


METRICS = {
    BLEU: MetricFacts("BLEU"),
    "chrf": MetricFacts("chrF2"),
    "ter": MetricFacts("TER", lower_is_better=True),
    "bleu_lc": MetricFacts("lower-cased BLEU"),
    "bleu_lc_tok": MetricFacts("lower-cased tokenised BLEU"),
}
"""Metrics of translations against references."""
USUAL_METRICS = (BLEU, "chrf", "ter")
"""What is taken where nobody asks for others."""


def metric_label(name: str) -> str:
    """How people write a metric; the name itself of one that only other versions know."""
    return METRICS[name].label if name in METRICS else name


def metric_name(name: str) -> str:
    """The name, if a metric has it; a ValueError if none does."""
    if name not in METRICS:
        *first, last = METRICS
        raise ValueError(f"Input should be {', '.join(first)} or {last}")
    return name


@dataclass(frozen=True)
class Criterion:
    """What makes one checkpoint better than another: a metric on a dev set."""

    dev_set: str
    metric: str

    @classmethod
    def parse(cls, text: str) -> Criterion:
        """A metric, on dev, or a dev set and a metric with a slash between them; a ValueError for anything else."""
        dev_set, slash, metric = text.rpartition("/")
        if metric not in (LOSS, *METRICS) or bool(slash) != bool(dev_set):
            names = ", ".join((LOSS, *METRICS))
            raise ValueError(f"Input should be one of {names}, or DEV_SET/METRIC such as news/{BLEU}")
        return cls(dev_set or DEV, metric)

    def __str__(self) -> str:
        return f"{self.dev_set}/{self.metric}"

    @property
    def label(self) -> str:
        """The same for people."""
        return f"{self.dev_set} {metric_label(self.metric)}"

    def rank(self, value: float | None, *, whole: bool = True) -> tuple[bool, float]:
        """What is greater for the better of two values; the worst is one that is missing or not a number.

        One of the whole dev set is better than any of its first sentences alone, which a model is measured on that
        cannot translate yet.
        """
        if value is None or math.isnan(value):
            return (False, -math.inf)
        lower_is_better = self.metric == LOSS or METRICS[self.metric].lower_is_better
        return (whole or self.metric == LOSS, -value if lower_is_better else value)


def criterion_text(text: str) -> str:
    """The text, if it names a criterion; a ValueError if it does not."""
    Criterion.parse(text)
    return text


BY_DEV_BLEU = Criterion(DEV, BLEU)
"""What counts where nobody says otherwise, and what all runs of older versions were judged by."""
