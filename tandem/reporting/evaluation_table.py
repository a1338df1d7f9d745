"""The evaluations of a run, one a line: what the curves show, as numbers."""

from __future__ import annotations

import math

from tandem.reporting.answers import Evaluation
from tandem.reporting.run_record import Curve, RunRecord

# Beyond it a perplexity is infinite to a float, and to everybody else.
LARGEST_LOG = 700.0


def evaluations_of(run: RunRecord) -> tuple[Evaluation, ...]:
    """Every evaluation that has a loss or a BLEU, the oldest first."""
    losses, scores = _by_step(run.eval_loss), _by_step(run.bleu)
    lowest, highest = _least(losses, 1), _least(scores, -1)
    return tuple(
        Evaluation(
            at=at,
            loss=losses.get(at),
            perplexity=_perplexity(losses.get(at)) if run.tokens_per_loss_value == 1 else None,
            bleu=scores.get(at),
            bleu_first_sentences=run.bleu_first_sentences.get(at),
            best=tuple(word for word, best in (("lowest loss", lowest), ("best BLEU", highest)) if at == best),
        )
        for at in sorted({*losses, *scores})
    )


def _by_step(curve: Curve) -> dict[float, float]:
    return dict(zip(curve.at.tolist(), curve.values.tolist(), strict=True))


def _least(values: dict[float, float], sign: int) -> float | None:
    finite = {at: sign * value for at, value in values.items() if math.isfinite(value)}
    return min(finite, key=finite.__getitem__) if finite else None


def _perplexity(loss: float | None) -> float | None:
    return None if loss is None or not loss < LARGEST_LOG else math.exp(loss)
