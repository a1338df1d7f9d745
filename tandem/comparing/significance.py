"""Whether chance could make one system look better than another: paired tests on the sentences of a test set.

The resamplings are those of sacreBLEU (its statistics, its generator, its seed), but not its `PairedTest`: that has no
interval for the difference, compares with one baseline only, and counts a trial that comes out exactly as far apart as
the systems are, which is common where few sentences differ, as evidence for a difference. Its bootstrap looks at one
side only; here p values are two-sided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from tandem.scoring import RESAMPLINGS, SEED, TAIL

Numbers = NDArray[np.float64]

TRIALS = 10_000
"""Trials of approximate randomisation: what sacreBLEU itself takes."""
_TRIALS_AT_ONCE = 500
# Sums of floats in another order differ by less; scores of two trials that differ at all differ by more.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Measure:
    """A metric of sacreBLEU as the tests need it."""

    name: str
    make: Callable[[], Any]
    lower_is_better: bool = False


MEASURES = (Measure("BLEU", BLEU), Measure("chrF2", CHRF), Measure("TER", TER, lower_is_better=True))


@dataclass(frozen=True)
class Statistics:
    """What a metric counts in each sentence of a translation; sums of the counts give the score of any set of them."""

    metric: Any
    counts: Numbers
    """A row a sentence."""

    @classmethod
    def of(cls, measure: Measure, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        metric = measure.make()
        counts = metric._extract_corpus_statistics(hypotheses, [references])
        return cls(metric, np.array(counts, dtype=np.float64))

    def score(self, sums: Numbers) -> float:
        return float(self.metric._compute_score_from_stats(sums).score)

    @property
    def whole(self) -> float:
        """The score of all sentences."""
        return self.score(self.counts.sum(0))


@dataclass(frozen=True)
class PairedBootstrap:
    """How the difference varies with the sentences that happen to be in the test set."""

    low: float
    high: float
    """The ends of what holds 95 % of the resamplings."""
    p: float
    """Share of resamplings that lie at least as far from their mean as the difference lies from nothing."""


def bootstrap(first: Sequence[Statistics], second: Sequence[Statistics]) -> PairedBootstrap:
    """Resample sentences with replacement; the difference is that of the mean scores of two groups of systems."""
    difference = _mean_whole(second) - _mean_whole(first)
    size = len(first[0].counts)
    chosen = np.random.default_rng(SEED).choice(size, size=(RESAMPLINGS, size), replace=True)
    found = np.empty(RESAMPLINGS)
    for number, sentences in enumerate(chosen):
        scores = [np.mean([one.score(one.counts[sentences].sum(0)) for one in group]) for group in (first, second)]
        found[number] = scores[1] - scores[0]
    ordered = np.sort(found)
    cut = RESAMPLINGS // TAIL
    return PairedBootstrap(
        float(ordered[cut]), float(ordered[-cut - 1]), share_as_far(np.abs(found - found.mean()), difference)
    )


def randomisation(first: Statistics, second: Statistics) -> float:
    """The p value of paired approximate randomisation.

    If it made no difference which system a sentence's translation is from, swapping some of them at random would lead
    to differences like the one that is there: the share of trials in which it does.
    """
    size = len(first.counts)
    # All at once, in the order in which sacreBLEU draws them.
    kept = np.random.default_rng(SEED).integers(2, size=(TRIALS, size), dtype=bool)
    both = first.counts.sum(0) + second.counts.sum(0)
    found = np.empty(TRIALS)
    for begin in range(0, TRIALS, _TRIALS_AT_ONCE):
        part = kept[begin : begin + _TRIALS_AT_ONCE].astype(np.float64)
        mixed = part @ first.counts + (1 - part) @ second.counts
        found[begin : begin + len(part)] = [abs(first.score(sums) - first.score(both - sums)) for sums in mixed]
    return share_as_far(found, second.whole - first.whole)


def share_as_far(distances: Numbers, difference: float) -> float:
    """Share of distances that are at least as large as the difference, which itself counts as one of them."""
    return (float(np.sum(distances >= abs(difference) - _ROUNDING)) + 1) / (len(distances) + 1)


def signature(statistics: Statistics, *, with_randomisation: bool) -> str:
    """How the differences were tested, in sacreBLEU's way of writing."""
    found = statistics.metric.get_signature()
    if with_randomisation:
        found.update("ar", TRIALS)
    found.update("bs", RESAMPLINGS)
    found.update("seed", SEED)
    return str(found)


def _mean_whole(group: Sequence[Statistics]) -> float:
    return float(np.mean([one.whole for one in group]))
