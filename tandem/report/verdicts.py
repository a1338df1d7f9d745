"""Is it trained, did it overfit: what the curves of losses and BLEU say together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tandem.report.answers import Confidence
from tandem.report.record import Curve, RunRecord
from tandem.report.trend import NEXT_DOUBLING, Slope, Turn, level_around, level_at_end, noise, recent_slope, turn

Trained = Literal["improving", "converged", "diverged", "degenerate", "too_short"]
Overfitting = Literal["yes", "no", "mixed", "unknown"]

# Twice the steps cost twice the money: a gain below this to be expected of it is none. In nats, three per cent of
# perplexity; in BLEU, about what two seeds of one recipe differ by.
WORTH_NATS, WORTH_BLEU = 0.03, 0.5
# A gain that chance does not quite exclude still counts as a sign if it is this many times its standard error.
SIGN_ERRORS = 1.5
# An evaluation loss that is worse than its best by less than two seeds of one recipe differ has not turned.
TURNED_NATS = 0.025
# With fewer evaluations, and fewer points of the training loss, nobody can tell a trend from a beginning.
FEWEST_EVALUATIONS, FEWEST_TRAINING_POINTS = 6, 20
# Even with a long training loss, fewer evaluations than this show no trend.
FEWEST_EVALUATIONS_AT_ALL = 3
# A model below this BLEU translates nothing.
NO_TRANSLATION_BLEU = 2.0
# A collapse: of the best BLEU less than this is left.
COLLAPSED_SHARE = 0.1
# A blow-up: half of what was learnt is lost, by a nat at least, and half of that within a tenth of the points.
# Overfitting may lose as much, but creeps.
LOST_SHARE, LOST_NATS, ABRUPT_SHARE, ABRUPT_POINTS = 0.5, 1.0, 0.5, 0.1
# No human language is this predictable from another; only broken data is, or a corpus that BLEU shows to be easy.
IMPLAUSIBLE_NATS, EASY_BLEU = 0.1, 50.0
# At a perplexity of 150 a model has learnt which words there are, and little else.
HOPELESS_NATS = 5.0
# A curve that has moved by less than this share of its value since the first evaluation has never learnt.
FLAT_SHARE = 0.06
# The first evaluation is near the beginning if it comes before this share of the steps.
NEAR_BEGINNING = 0.2


@dataclass(frozen=True)
class Forecast:
    """A value at twice the steps: middle, and an interval around it."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Learning:
    """The curves of a run, judged."""

    trained: Trained
    trained_confidence: Confidence
    trained_because: str
    overfitting: Overfitting
    overfitting_confidence: Confidence
    overfitting_because: str
    loss_slope: Slope | None
    bleu_slope: Slope | None
    loss_turn: Turn | None
    bleu_since_turn: float | None
    """How BLEU has changed since the evaluation loss was at its best."""
    loss_forecast: Forecast | None
    bleu_forecast: Forecast | None


def judge(run: RunRecord) -> Learning:
    """Read the curves."""
    run = _per_token(run)
    loss, bleu = run.eval_loss.finite, run.bleu.finite
    loss_turn = turn(loss, lower_is_better=True) if len(loss) else None
    turned_at = loss_turn.best_at if loss_turn is not None and loss_turn.beyond(TURNED_NATS) else 0.0
    # A line through a curve's fall and its rise would tell neither.
    loss_slope, bleu_slope = recent_slope(loss, since=turned_at), recent_slope(bleu)
    since = None
    if loss_turn is not None and len(bleu):
        since = level_at_end(bleu) - level_around(bleu, loss_turn.best_at)
    trained, confidence, because = _trained(run, loss_slope, bleu_slope, loss_turn)
    overfitting, overfitting_confidence, overfitting_because = _overfitting(run, trained, loss_turn, since)
    going_on = trained in ("improving", "converged")
    return Learning(
        trained=trained,
        trained_confidence=confidence,
        trained_because=because,
        overfitting=overfitting,
        overfitting_confidence=overfitting_confidence,
        overfitting_because=overfitting_because,
        loss_slope=loss_slope,
        bleu_slope=bleu_slope,
        loss_turn=loss_turn,
        bleu_since_turn=since,
        loss_forecast=_forecast(loss, loss_slope, better=-1.0) if going_on else None,
        bleu_forecast=_forecast(bleu, bleu_slope, better=1.0) if going_on else None,
    )


def _per_token(run: RunRecord) -> RunRecord:
    """The run with its evaluation loss in nats per token, in which all bounds are."""
    loss = Curve(run.eval_loss.at, run.eval_loss.values / run.tokens_per_loss_value)
    return replace(run, eval_loss=loss)


def _trained(
    run: RunRecord, loss_slope: Slope | None, bleu_slope: Slope | None, loss_turn: Turn | None
) -> tuple[Trained, Confidence, str]:
    if because := _divergence(run, loss_turn):
        return "diverged", "high", because
    evaluations = max(len(run.eval_loss.finite), len(run.bleu.finite))
    if evaluations < FEWEST_EVALUATIONS_AT_ALL or (
        evaluations < FEWEST_EVALUATIONS and len(run.train_loss.finite) < FEWEST_TRAINING_POINTS
    ):
        if not run.last_step:
            return "too_short", "high", "no step was taken"
        if not evaluations:
            return "too_short", "none", "there is no evaluation in the data"
        count = f"{evaluations} evaluation{'s are' if evaluations > 1 else ' is'}"
        return "too_short", "high", f"{count} too few to tell a trend from a beginning"
    if because := _degeneration(run, loss_slope):
        return "degenerate", "high", because
    if _hardly_moved(run):
        return "improving", "low", f"the evaluation loss has only begun to fall; {_trends(loss_slope, bleu_slope)}"
    if (verdict := _of_few_evaluations(run, loss_slope, bleu_slope)) is not None:
        return verdict
    return _improving_or_converged(loss_slope, bleu_slope, loss_turn)


def _of_few_evaluations(
    run: RunRecord, loss_slope: Slope | None, bleu_slope: Slope | None
) -> tuple[Trained, Confidence, str] | None:
    """A verdict where evaluations are so few that a large slope of theirs proves nothing; None elsewhere."""
    loss, bleu = run.eval_loss.finite, run.bleu.finite
    slopes = ((loss_slope, -1, WORTH_NATS), (bleu_slope, 1, WORTH_BLEU))
    unproven = [
        slope is not None and not slope.significant and better * slope.next_doubling > worth
        for slope, better, worth in slopes
    ]
    proven = any(_gains(slope, better, worth) for slope, better, worth in slopes)
    if max(len(loss), len(bleu)) >= FEWEST_EVALUATIONS or proven or not any(unproven):
        return None
    # The training loss has many points: where it falls and every evaluation was better than the last, all agree.
    train_slope = recent_slope(run.train_loss)
    ever_better = bool((np.diff(loss.values) < 0).all() and (np.diff(bleu.values) > 0).all())
    if ever_better and train_slope is not None and _gains(train_slope, -1, WORTH_NATS):
        falls = f"the training loss changes by {train_slope.per_doubling:+.3f} (±{2 * train_slope.error:.3f})"
        return "improving", "medium", f"every evaluation was better than the last, and for each doubling {falls}"
    return "too_short", "medium", f"so few evaluations leave it open; {_trends(loss_slope, bleu_slope)}"


def _divergence(run: RunRecord, loss_turn: Turn | None) -> str | None:
    """Why the run has diverged; None if it has not."""
    if run.not_finite:
        return run.failure or "the program stopped because its numbers were not finite any more"
    for name, curve in (("training loss", run.train_loss), ("evaluation loss", run.eval_loss)):
        if len(curve) and not math.isfinite(curve.values[-1]):
            first_bad = curve.at[~np.isfinite(curve.values)][0]
            return f"the {name} is not a number any more (first at {run.axis} {first_bad:,.0f})"
    loss, bleu, train = run.eval_loss.finite, run.bleu.finite, run.train_loss.finite
    collapsed = len(bleu) > 1 and level_at_end(bleu) < COLLAPSED_SHARE * bleu.values.max()
    if loss_turn is not None and loss_turn.beyond(TURNED_NATS):
        rise = f"the evaluation loss has risen by {loss_turn.worsening:.2f} since {run.axis} {loss_turn.best_at:,.0f}"
        if collapsed:
            return f"{rise}, and BLEU has collapsed to {level_at_end(bleu):.1f}"
        if _has_lost_most(train):
            return f"{rise}, and the training loss with it"
        hopeless = level_at_end(loss) > HOPELESS_NATS and _has_lost_most(loss)
        if (hopeless or _has_blown_up(loss)) and not len(train):
            return f"{rise}, to a perplexity of {math.exp(min(level_at_end(loss), 700.0)):,.0f}"
    elif _has_blown_up(train) and (not len(loss) or loss.at[-1] < turn(train, lower_is_better=True).best_at):
        return "the training loss has blown up since the last evaluation"
    if collapsed and bleu.values.max() > NO_TRANSLATION_BLEU:
        return f"BLEU has collapsed from {bleu.values.max():.1f} to {level_at_end(bleu):.1f}"
    return None


def _has_lost_most(loss: Curve) -> bool:
    """Whether a loss has risen again by most of what it had fallen."""
    if len(loss) < FEWEST_EVALUATIONS_AT_ALL:
        return False
    found = turn(loss, lower_is_better=True)
    return found.beyond(TURNED_NATS) and found.worsening > LOST_SHARE * (loss.values[0] - found.best)


def _has_blown_up(loss: Curve) -> bool:
    """Whether it has done so at once."""
    if not _has_lost_most(loss):
        return False
    worsening = turn(loss, lower_is_better=True).worsening
    apart = max(round(ABRUPT_POINTS * len(loss)), 1)
    jump = float((loss.values[apart:] - loss.values[:-apart]).max())
    return worsening > LOST_NATS and jump > ABRUPT_SHARE * worsening


def _degeneration(run: RunRecord, loss_slope: Slope | None) -> str | None:
    """Why what was learnt is no translation; None if it may be one."""
    loss, bleu = run.eval_loss.finite, run.bleu.finite
    improves = _gains(loss_slope, -1, WORTH_NATS)
    if len(bleu) and level_at_end(bleu) < NO_TRANSLATION_BLEU and not improves:
        beside = " and the evaluation loss falls no more" if len(loss) else ""
        return f"BLEU is {level_at_end(bleu):.1f}{beside}: it translates nothing"
    if len(loss) < FEWEST_EVALUATIONS_AT_ALL:
        return None
    level, easy = level_at_end(loss), len(bleu) and level_at_end(bleu) > EASY_BLEU
    perplexity = math.exp(min(level, 700.0))
    if level < IMPLAUSIBLE_NATS and not easy:
        return (
            f"a perplexity of {perplexity:.2f}: no translation is that predictable; look at the data (source and "
            "target may be the same, or almost all padding)"
        )
    if level > HOPELESS_NATS and not improves and not _falls(loss_slope) and not len(bleu):
        return f"the evaluation loss falls no more at a perplexity of {perplexity:,.0f}: it translates nothing"
    if _hardly_moved(run) and not _falls(loss_slope):
        return f"the evaluation loss has hardly moved since the first evaluation (perplexity {perplexity:,.2f})"
    return None


def _hardly_moved(run: RunRecord) -> bool:
    """Whether the evaluation loss is still where it was near the beginning of the run, with no BLEU to say more."""
    loss = run.eval_loss.finite
    if not len(loss) or len(run.bleu) or loss.at[0] > NEAR_BEGINNING * loss.at[-1]:
        return False
    return float(np.ptp(loss.values)) < FLAT_SHARE * abs(float(loss.values[0]))


def _falls(slope: Slope | None) -> bool:
    return slope is not None and slope.significant and slope.per_doubling < 0


def _gains(slope: Slope | None, better: int, worth: float) -> bool:
    """Whether a curve gets better by more than chance, and will by what is worth the money."""
    return slope is not None and slope.significant and better * slope.next_doubling > worth


def _may_gain(slope: Slope | None, better: int, worth: float) -> bool:
    """Whether it looks as if a curve got better by what is worth the money, though chance is not excluded."""
    return (
        slope is not None
        and better * slope.next_doubling > worth
        and better * slope.per_doubling > SIGN_ERRORS * slope.error
    )


def _improving_or_converged(
    loss_slope: Slope | None, bleu_slope: Slope | None, loss_turn: Turn | None
) -> tuple[Trained, Confidence, str]:
    """BLEU is what is wanted; the evaluation loss is quieter. Either of them may still be worth going on for."""
    loss_turned = loss_turn is not None and loss_turn.beyond(TURNED_NATS)
    loss_gains = _gains(loss_slope, -1, WORTH_NATS) and not loss_turned
    bleu_gains = _gains(bleu_slope, 1, WORTH_BLEU)
    because = _trends(loss_slope, bleu_slope)
    if loss_gains or bleu_gains:
        both = loss_gains and (bleu_gains or bleu_slope is None)
        return "improving", "high" if both else "medium", because
    may_gain = _may_gain(loss_slope, -1, WORTH_NATS) or _may_gain(bleu_slope, 1, WORTH_BLEU)
    if may_gain and not loss_turned:
        return "improving", "low", because
    if loss_turned:
        because = f"the evaluation loss is past its best; {because}"
    return "converged", "medium" if may_gain else "high", because


def _trends(loss_slope: Slope | None, bleu_slope: Slope | None) -> str:
    """The recent slopes in words."""
    said = [
        f"{name} {slope.per_doubling:+.{digits}f} (±{2 * slope.error:.{digits}f})"
        for name, slope, digits in (("evaluation loss", loss_slope, 3), ("BLEU", bleu_slope, 2))
        if slope is not None
    ]
    return f"lately, for each doubling of the length: {', '.join(said)}"


def _overfitting(
    run: RunRecord, trained: Trained, loss_turn: Turn | None, bleu_since: float | None
) -> tuple[Overfitting, Confidence, str]:
    loss, bleu = run.eval_loss.finite, run.bleu.finite
    if loss_turn is None:
        return "unknown", "none", "there is no evaluation loss"
    if len(loss) < FEWEST_EVALUATIONS_AT_ALL:
        return "unknown", "none", "there are too few evaluations"
    if trained == "degenerate":
        return "unknown", "none", "the evaluation loss says nothing of this model"
    few = len(loss) < FEWEST_EVALUATIONS
    bleu_turn = turn(bleu, lower_is_better=False) if len(bleu) else None
    translates = len(bleu) and bleu.values.max() >= NO_TRANSLATION_BLEU
    fell = translates and bleu_turn is not None and bleu_turn.beyond(WORTH_BLEU)
    if not loss_turn.beyond(TURNED_NATS):
        if fell and bleu_turn is not None:
            return "mixed", "medium", f"the evaluation loss keeps its best, but BLEU lost {bleu_turn.worsening:.1f}"
        # A turn that would drown in the noise cannot be excluded with certainty.
        clear = 3 * loss_turn.noise < TURNED_NATS
        confidence: Confidence = "low" if few else "high" if clear else "medium"
        return "no", confidence, "the evaluation loss ends at its best, within noise"
    where = f"{run.axis} {loss_turn.best_at:,.0f}"
    rise = f"the level of the evaluation loss turned at {where} and rose by {loss_turn.worsening:.3f}"
    if bleu_since is None or not translates:
        return "yes", "medium", rise
    if bleu_since < -WORTH_BLEU or fell:
        return "yes", "high", f"{rise}, and BLEU changed by {bleu_since:+.1f}"
    return "mixed", "medium", f"{rise}, yet BLEU changed by {bleu_since:+.1f}: it does not share the loss's view"


def _forecast(curve: Curve, slope: Slope | None, better: float) -> Forecast | None:
    """The curve at twice the steps; a curve that gets worse is not expected to be trained on."""
    if slope is None:
        return None
    now, error = level_at_end(curve), 2 * (slope.error + noise(curve.values))
    last, coming = (max(better * gain, 0.0) for gain in (slope.per_doubling, slope.next_doubling))
    middle = now + better * coming
    ends = [
        now + better * gain for gain in (min(NEXT_DOUBLING[0] * last, coming), max(NEXT_DOUBLING[2] * last, coming))
    ]
    low, high = min(ends) - error, max(ends) + error
    if better > 0:
        return Forecast(max(low, 0.0), min(middle, 100.0), min(high, 100.0))
    return Forecast(max(low, 0.0), max(middle, 0.0), high)
