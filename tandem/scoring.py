"""Quality of translations by sacreBLEU: BLEU, chrF and TER on detokenised text, each with its signature.

Beside them stand two kinds of BLEU for comparison with old papers alone, both labelled as what they are: on lower-cased
text, and on lower-cased text that was cut into Moses' tokens before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from tandem.errors import TandemError
from tandem.metrics import METRICS, USUAL_METRICS

# Resamplings of the test set: what sacreBLEU itself takes, and papers report.
RESAMPLINGS = 1000
# What sacreBLEU draws them from, too, so that the same files give the same figures everywhere.
SEED = 12345
# One part in so many of the resamplings lies beyond either end of an interval that holds 95 %.
TAIL = 40
COMET = "COMET"


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
        better = " (lower is better)" if self.metric == METRICS["ter"].label else ""
        # COMET is about 0 to 1, the others are 0 to 100.
        value, mean, interval = (
            f"{number:.{4 if self.metric == COMET else 2}f}" for number in (self.value, self.mean, self.interval)
        )
        return f"{self.metric} {value}, 95 % within {mean} ± {interval}{better}"


@dataclass(frozen=True)
class Scorer:
    """One of sacreBLEU's metrics, and what is done to the text before."""

    metric: Metric
    prepared: Callable[[Sequence[str]], Sequence[str]] = list
    tokenizer: str = ""
    """Name and version of the tokenizer that cut the text before; empty if the metric does that itself."""

    def signature(self) -> str:
        """sacreBLEU's, with the tokenizer in its place where sacreBLEU knows of none; complete after the scoring."""
        said = str(self.metric.get_signature())
        return said.replace("tok:none", f"tok:{self.tokenizer}") if self.tokenizer else said


def bleu_score(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU from 0 to 100, cased, on detokenised text, and sacreBLEU's signature, which says how it was computed."""
    return metric_score("bleu", hypotheses, references)


def bleu_signature() -> str:
    """The signature of every BLEU that Tandem prints without an interval."""
    return bleu_score([""], [""])[1]


def metric_score(
    name: str, hypotheses: Sequence[str], references: Sequence[str], language: str | None = None
) -> tuple[float, str]:
    """A metric's value on a whole test set, without an interval, and its signature."""
    scorer = make_scorer(name, language)
    found = scorer.metric.corpus_score(scorer.prepared(hypotheses), [scorer.prepared(references)])
    return float(found.score), scorer.signature()


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[str],
    resamplings: int = RESAMPLINGS,
    *,
    metrics: Sequence[str] = USUAL_METRICS,
    language: str | None = None,
) -> list[Score]:
    """Metrics with bootstrap intervals; sacreBLEU draws the resamplings from a fixed seed."""
    if len(hypotheses) != len(references):
        raise TandemError(
            f"{len(hypotheses):,} translations for {len(references):,} references; give a line for each reference"
        )
    if not references:
        raise TandemError("no lines to score; give files that are not empty")
    scores = []
    for name in metrics:
        scorer = make_scorer(name, language)
        texts = scorer.prepared(hypotheses), [scorer.prepared(references)]
        found = scorer.metric.corpus_score(*texts, n_bootstrap=resamplings)
        # sacreBLEU offers mean and interval only inside a formatted line, or under these names.
        mean, interval = float(found._mean), float(found._ci)
        scores.append(Score(METRICS[name].label, float(found.score), mean, interval, scorer.signature()))
    return scores


def make_scorer(name: str, language: str | None = None) -> Scorer:
    """What computes a metric; the one on Moses' tokens needs to know the target language."""
    if name not in METRICS:
        raise TandemError(f"{name}: no metric of that name; choose from {', '.join(METRICS)}")
    match name:
        case "chrf":
            return Scorer(CHRF())
        case "ter":
            return Scorer(TER())
        case "bleu_lc":
            return Scorer(BLEU(lowercase=True))
        case "bleu_lc_tok":
            return _on_moses_tokens(language)
    return Scorer(BLEU())


def _on_moses_tokens(language: str | None) -> Scorer:
    """What `multi-bleu.perl -lc` prints for the output of Moses' `tokenizer.perl`: no smoothing, hyphens kept."""
    if language is None:
        raise TandemError("bleu_lc_tok: Moses' tokenizer must know the target language; give it, e.g. --language de")
    try:
        from sacremoses import MosesTokenizer
    except ModuleNotFoundError as error:
        raise TandemError(f"bleu_lc_tok: {error.name} is not installed; pip install 'tandem-nmt[moses]'") from error
    # Without escapes, which change how a token is written and never what is one.
    cut = partial(MosesTokenizer(lang=language).tokenize, return_str=True, escape=False)
    metric = BLEU(lowercase=True, tokenize="none", smooth_method="none", force=True)
    tokenizer = f"moses-{language}-sacremoses-{version('sacremoses')}"
    return Scorer(metric, lambda lines: [cut(line) for line in lines], tokenizer)
