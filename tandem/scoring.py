"""Quality of translations by sacreBLEU: BLEU, chrF and TER on detokenised text, each with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from tandem.errors import TandemError

# Resamplings of the test set: what sacreBLEU itself takes, and papers report.
RESAMPLINGS = 1000


@dataclass(frozen=True)
class Score:
    """A metric's value on a whole test set."""

    metric: str
    value: float
    mean: float
    """Mean over bootstrap resamplings of the sentences."""
    interval: float
    """Half the width of the interval that holds 95 % of the resamplings."""
    signature: str
    """How it was computed, as sacreBLEU writes it."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        better = " (lower is better)" if self.metric == "TER" else ""
        return f"{self.metric} {self.value:.2f}, 95 % within {self.mean:.2f} ± {self.interval:.2f}{better}"


def bleu_score(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU from 0 to 100, cased, on detokenised text, and sacreBLEU's signature, which says how it was computed."""
    metric = BLEU()
    bleu = metric.corpus_score(hypotheses, [references]).score
    return bleu, str(metric.get_signature())


def bleu_signature() -> str:
    """The signature of every BLEU that Tandem prints without an interval."""
    return bleu_score([""], [""])[1]


def score_all(hypotheses: Sequence[str], references: Sequence[str], resamplings: int = RESAMPLINGS) -> list[Score]:
    """BLEU, chrF and TER with bootstrap intervals; sacreBLEU draws the resamplings from a fixed seed."""
    if len(hypotheses) != len(references):
        raise TandemError(
            f"{len(hypotheses):,} translations for {len(references):,} references; give a line for each reference"
        )
    if not references:
        raise TandemError("no lines to score; give files that are not empty")
    scores = []
    for metric in (BLEU(), CHRF(), TER()):
        found = metric.corpus_score(hypotheses, [references], n_bootstrap=resamplings)
        # sacreBLEU offers mean and interval only inside a formatted line, or under these names.
        mean, interval = float(found._mean), float(found._ci)
        scores.append(Score(found.name, float(found.score), mean, interval, str(metric.get_signature())))
    return scores
