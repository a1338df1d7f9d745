"""Verdicts on a run's learning, from losses and BLEU: is it trained, did it overfit?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tandem.reporting.answers import Confidence, Judgement
from tandem.reporting.judge.trend import NEXT_DOUBLING, Slope, level_around, level_at_end, noise, recent_slope, turn
from tandem.reporting.run_record import Curve, RunRecord

# Twice the steps cost twice the money: a gain below this to be expected of it is none. In nats, three per cent of
# perplexity; in BLEU, about what two seeds of one recipe differ by.
WORTH_NATS, WORTH_BLEU = 0.03, 0.5
# The gain to expect, less what is worth the money, in standard deviations: from here on a verdict is sure, or likely.
SURE_DEVIATIONS, LIKELY_DEVIATIONS = 2.0, 1.0
# A gain that chance does not quite exclude still counts as a sign if it is this many times its standard error.
SIGN_ERRORS = 1.5
# An evaluation loss that is worse than its best by less than two seeds of one recipe differ has not turned.
TURNED_NATS = 0.025
# A learning rate is cut where it falls to this share or less from one logged value to the next, after it had stayed
# within STAYED of its value: schedules that fall all the time cut nothing.
CUT_SHARE, STAYED = 0.8, 0.98
# A cut is recent with fewer evaluations since, or in the last tenth of the steps: what it brings is yet to be seen.
EVALUATIONS_SINCE_CUT, RECENT_CUT = 5, 0.1
# Evaluations before a cut that its gain is measured against.
EVALUATIONS_BEFORE_CUT = 5
# No translator of human text comes near this BLEU, in which there is more than one way to say things, with so low a
# loss; one that has seen the evaluation text does.
IMPLAUSIBLE_BLEU, IMPLAUSIBLE_BLEU_NATS = 65.0, 0.7
# With fewer evaluations, and fewer points of the training loss, nobody can tell a trend from a beginning.
FEWEST_EVALUATIONS, FEWEST_TRAINING_POINTS = 6, 20
# Even with a long training loss, fewer evaluations than this show no trend.
FEWEST_EVALUATIONS_AT_ALL = 3
# A model below this BLEU translates nothing.
NO_TRANSLATION_BLEU = 2.0
# BLEU has collapsed if less than this share of its best is left.
COLLAPSED_SHARE = 0.1
# A blow-up: half of what was learnt is lost, by a nat at least, and half of that within a tenth of the points.
# Overfitting may lose as much, but creeps.
LOST_SHARE, MUCH_NATS, LOST_NATS, ABRUPT_SHARE, ABRUPT_POINTS = 0.5, 0.5, 1.0, 0.5, 0.1
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


class Learning:
    """Verdicts on what a run has learnt, with the curves, slopes, turn and forecasts behind them."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        # The evaluation loss in nats per token.
        self.loss = run.eval_loss.finite.scaled(1 / run.tokens_per_loss_value)
        self.bleu, self.train = run.bleu.finite, run.train_loss.finite
        self.loss_turn = turn(self.loss, lower_is_better=True) if len(self.loss) else None
        self.turned = self.loss_turn is not None and self.loss_turn.beyond(TURNED_NATS)
        # A line through a curve's fall and its rise would tell neither.
        since = self.loss_turn.best_at if self.turned and self.loss_turn is not None else 0.0
        self.loss_slope = recent_slope(self.loss, since, run.first_step)
        self.bleu_slope = recent_slope(self.bleu, first_step=run.first_step)
        self.evaluations = max(len(self.loss), len(self.bleu))
        self.bleu_since_turn = None
        """How BLEU has changed since the evaluation loss was at its best."""
        if self.loss_turn is not None and len(self.bleu):
            self.bleu_since_turn = level_at_end(self.bleu) - level_around(self.bleu, self.loss_turn.best_at)
        self.trained = self._trained()
        """`improving`, `converged`, `diverged`, `degenerate` or `too_short`."""
        self.overfitting = self._overfitting()
        """`yes`, `no`, `mixed` or `unknown`."""
        self.remark = self._remark()
        """What is odd about the scores, in a sentence without a full stop; empty if nothing is."""
        going_on = self.trained.verdict in ("improving", "converged")
        self.loss_forecast = _forecast(self.loss, self.loss_slope, better=-1.0) if going_on else None
        self.bleu_forecast = _forecast(self.bleu, self.bleu_slope, better=1.0) if going_on else None

    def _trained(self) -> Judgement:
        if because := self._divergence():
            return Judgement("diverged", "high", because)
        few = self.evaluations < FEWEST_EVALUATIONS and len(self.train) < FEWEST_TRAINING_POINTS
        if few or self.evaluations < FEWEST_EVALUATIONS_AT_ALL:
            if not self.run.last_step:
                return Judgement("too_short", "high", "no step was taken")
            if not self.evaluations:
                return Judgement("too_short", "none", "there is no evaluation in the data")
            count = f"{self.evaluations} evaluation{'s are' if self.evaluations > 1 else ' is'}"
            return Judgement("too_short", "high", f"{count} too few to tell a trend from a beginning")
        if because := self._degeneration():
            return Judgement("degenerate", "high", because)
        if self._hardly_moved():
            begun = f"the evaluation loss has only begun to fall; {self._trends()}"
            return Judgement("improving", "low", begun)
        return self._of_few_evaluations() or self._gaining_from_a_cut() or self._improving_or_converged()

    def _overfitting(self) -> Judgement:
        loss_turn, bleu_since = self.loss_turn, self.bleu_since_turn
        if loss_turn is None:
            return Judgement("unknown", "none", "there is no evaluation loss")
        if len(self.loss) < FEWEST_EVALUATIONS_AT_ALL:
            return Judgement("unknown", "none", "there are too few evaluations")
        if self.trained.verdict == "degenerate":
            return Judgement("unknown", "none", "the evaluation loss says nothing of this model")
        translates = bool(len(self.bleu)) and self.bleu.values.max() >= NO_TRANSLATION_BLEU
        bleu_turn = turn(self.bleu, lower_is_better=False) if translates else None
        lost = bleu_turn.worsening if bleu_turn is not None and bleu_turn.beyond(WORTH_BLEU) else None
        if not self.turned:
            if lost is not None:
                because = f"the evaluation loss keeps its best, but BLEU lost {lost:.1f}"
                return Judgement("mixed", "medium", because)
            # A turn that would drown in the noise cannot be excluded with certainty.
            clear = 3 * loss_turn.noise < TURNED_NATS
            confidence: Confidence = "low" if len(self.loss) < FEWEST_EVALUATIONS else "high" if clear else "medium"
            return Judgement("no", confidence, "the evaluation loss ends at its best, within noise")
        where = f"{self.run.axis} {loss_turn.best_at:,.0f}"
        rise = f"the level of the evaluation loss turned at {where} and rose by {loss_turn.worsening:.3f}"
        if bleu_since is None or not translates:
            return Judgement("yes", "medium", rise)
        if bleu_since < -WORTH_BLEU or lost is not None:
            return Judgement("yes", "high", f"{rise}, and BLEU changed by {bleu_since:+.1f}")
        disagrees = f"yet BLEU changed by {bleu_since:+.1f}: it does not share the loss's view"
        return Judgement("mixed", "medium", f"{rise}, {disagrees}")

    def _divergence(self) -> str | None:
        """Why the run has diverged; None if it has not."""
        run, loss, bleu, train = self.run, self.loss, self.bleu, self.train
        if run.not_finite:
            return run.failure or "the program stopped because its numbers were not finite any more"
        for name, curve in (("training loss", run.train_loss), ("evaluation loss", run.eval_loss)):
            if len(curve) and not math.isfinite(curve.values[-1]):
                first_bad = curve.at[~np.isfinite(curve.values)][0]
                return f"the {name} is not a number any more (first at {run.axis} {first_bad:,.0f})"
        collapsed = len(bleu) > 1 and level_at_end(bleu) < COLLAPSED_SHARE * bleu.values.max()
        if self.turned and self.loss_turn is not None:
            since = f"{run.axis} {self.loss_turn.best_at:,.0f}"
            rise = f"the evaluation loss has risen by {self.loss_turn.worsening:.2f} since {since}"
            if collapsed:
                return f"{rise}, and BLEU has collapsed to {level_at_end(bleu):.1f}"
            if _has_lost_most(train):
                return f"{rise}, and the training loss with it"
            hopeless = level_at_end(loss) > HOPELESS_NATS and _has_lost_most(loss)
            if (hopeless or _has_blown_up(loss)) and not len(train):
                return f"{rise}, to a perplexity of {_perplexity(loss):,.0f}"
        elif _has_blown_up(train) and (not len(loss) or loss.at[-1] < turn(train, lower_is_better=True).best_at):
            return "the training loss has blown up since the last evaluation"
        if collapsed and bleu.values.max() > NO_TRANSLATION_BLEU:
            return f"BLEU has collapsed from {bleu.values.max():.1f} to {level_at_end(bleu):.1f}"
        return None

    def _degeneration(self) -> str | None:
        """Why what was learnt is no translation; None if it may be one."""
        improves = _gains(self.loss_slope, -1, WORTH_NATS)
        bleu = level_at_end(self.bleu) if len(self.bleu) else None
        if bleu is not None and bleu < NO_TRANSLATION_BLEU and not improves:
            beside = " and the evaluation loss falls no more" if len(self.loss) else ""
            return f"BLEU is {bleu:.1f}{beside}: it translates nothing"
        if len(self.loss) < FEWEST_EVALUATIONS_AT_ALL:
            return None
        level, perplexity = level_at_end(self.loss), _perplexity(self.loss)
        if level < IMPLAUSIBLE_NATS and (bleu is None or bleu <= EASY_BLEU):
            return (
                f"a perplexity of {perplexity:.2f}: no translation is that predictable; look at the data (source and "
                "target may be the same, or almost all padding)"
            )
        falls = self.loss_slope is not None and self.loss_slope.significant and self.loss_slope.per_doubling < 0
        if level > HOPELESS_NATS and not improves and not falls and bleu is None:
            return f"the evaluation loss falls no more at a perplexity of {perplexity:,.0f}: it translates nothing"
        if self._hardly_moved() and not falls:
            return f"the evaluation loss has hardly moved since the first evaluation (perplexity {perplexity:,.2f})"
        return None

    def _hardly_moved(self) -> bool:
        """Whether the evaluation loss is still where it was near the beginning of the run, with no BLEU to say more."""
        loss = self.loss
        if not len(loss) or len(self.run.bleu) or loss.at[0] > NEAR_BEGINNING * loss.at[-1]:
            return False
        return float(np.ptp(loss.values)) < FLAT_SHARE * abs(float(loss.values[0]))

    def _of_few_evaluations(self) -> Judgement | None:
        """A verdict where evaluations are so few that a large slope of theirs proves nothing; None elsewhere."""
        slopes = ((self.loss_slope, -1, WORTH_NATS), (self.bleu_slope, 1, WORTH_BLEU))
        proven = any(_gains(*slope) for slope in slopes)
        expected = any(slope is not None and better * slope.next_doubling > worth for slope, better, worth in slopes)
        if self.evaluations >= FEWEST_EVALUATIONS or proven or not expected:
            return None
        # The training loss has many points: where it falls and every evaluation was better than the last, all agree.
        train_slope = recent_slope(self.run.train_loss, first_step=self.run.first_step)
        ever_better = bool((np.diff(self.loss.values) < 0).all() and (np.diff(self.bleu.values) > 0).all())
        if ever_better and train_slope is not None and _gains(train_slope, -1, WORTH_NATS):
            falls = f"the training loss changes by {train_slope.per_doubling:+.3f} (±{2 * train_slope.error:.3f})"
            because = f"every evaluation was better than the last, and for each doubling {falls}"
            return Judgement("improving", "medium", because)
        return Judgement("too_short", "medium", f"so few evaluations leave it open; {self._trends()}")

    def _improving_or_converged(self) -> Judgement:
        """BLEU is what is wanted; the evaluation loss is quieter. Either of them may still be worth going on for."""
        slopes = ((self.loss_slope, -1, WORTH_NATS), (self.bleu_slope, 1, WORTH_BLEU))
        loss, bleu = (None if slope is None else _Prospect.of(slope, better, worth) for slope, better, worth in slopes)
        # A loss past its best is no reason to go on.
        open_questions = [found for found in (None if self.turned else loss, bleu) if found is not None]
        gaining = [found for found in open_questions if found.gains]
        because = self._trends()
        if gaining:
            sure = max(gaining, key=lambda found: found.deviations)
            # Loss and BLEU that disagree leave a doubt, also where one of them is past its best.
            agree = len(gaining) == len([found for found in (loss, bleu) if found is not None])
            confidence = sure.confidence if agree or sure.confidence != "high" else "medium"
            return Judgement("improving", confidence, f"{because}{sure.doubt}")
        may_gain = any(found.may_gain for found in open_questions)
        if may_gain and not self.turned:
            return Judgement("improving", "low", because)
        if self.turned:
            because = f"the evaluation loss is past its best; {because}"
        if not open_questions:
            return Judgement("converged", "high" if self.turned else "low", because)
        # The loss, which comes first where there is one, is quieter than BLEU: the other can only leave a doubt.
        first, others = open_questions[0], open_questions[1:]
        doubtful = may_gain or any(found.confidence == "low" for found in others)
        confidence = "medium" if doubtful and first.confidence == "high" else first.confidence
        return Judgement("converged", confidence, f"{because}{first.doubt}")

    def _gaining_from_a_cut(self) -> Judgement | None:
        """A verdict where the learning rate was cut a little before the end, which brought a gain; None elsewhere."""
        at, rate = self.run.learning_rate.finite.at, self.run.learning_rate.finite.values
        stayed = np.concatenate([[True], rate[1:-1] >= STAYED * rate[:-2]]) if len(rate) > 1 else np.array([], bool)
        cuts = np.flatnonzero((rate[1:] <= CUT_SHARE * rate[:-1]) & (rate[1:] > 0) & stayed)
        if self.turned or not len(cuts):
            return None
        cut = int(cuts[-1])
        for name, curve, better, worth in (
            ("evaluation loss", self.loss, -1.0, WORTH_NATS),
            ("BLEU", self.bleu, 1.0, WORTH_BLEU),
        ):
            before, since = curve.values[curve.at <= at[cut]], curve.values[curve.at > at[cut]]
            recent = len(since) < EVALUATIONS_SINCE_CUT or curve.at[-1] - at[cut] < RECENT_CUT * curve.at[-1]
            if len(before) < FEWEST_EVALUATIONS_AT_ALL or not len(since) or not recent:
                continue
            change = float(np.median(since[-EVALUATIONS_SINCE_CUT:]) - np.median(before[-EVALUATIONS_BEFORE_CUT:]))
            if better * change > max(worth, 3 * noise(before)):
                because = (
                    f"the learning rate was cut by {1 - rate[cut + 1] / rate[cut]:.0%} after {self.run.axis} "
                    f"{at[cut]:,.0f}, which has changed the {name} by {change:+.3g} so far; {self._trends()}"
                )
                return Judgement("improving", "low" if len(since) < FEWEST_EVALUATIONS_AT_ALL else "medium", because)
        return None

    def _remark(self) -> str:
        if not len(self.loss) or not len(self.bleu) or self.trained.verdict in ("degenerate", "diverged"):
            return ""
        loss, bleu = level_at_end(self.loss), level_at_end(self.bleu)
        if bleu < IMPLAUSIBLE_BLEU or loss > IMPLAUSIBLE_BLEU_NATS:
            return ""
        return (
            f"A BLEU of {bleu:.0f} with a loss of {loss:.2f} is more than translators of ordinary text reach: "
            "sentences of the evaluation text may stand in the training text, too, unless the corpus is a very easy one"
        )

    def _trends(self) -> str:
        """The recent slopes in words."""
        said = [
            f"{name} {slope.per_doubling:+.{digits}f} (±{2 * slope.error:.{digits}f})"
            for name, slope, digits in (("evaluation loss", self.loss_slope, 3), ("BLEU", self.bleu_slope, 2))
            if slope is not None
        ]
        return f"lately, for each doubling of the length: {', '.join(said)}"


def _perplexity(loss: Curve) -> float:
    return math.exp(min(level_at_end(loss), 700.0))


def _has_lost_most(loss: Curve) -> bool:
    """Whether a loss has risen again by most of what it had fallen, little for a model that was trained before.

    So it must be much by itself, too.
    """
    if len(loss) < FEWEST_EVALUATIONS_AT_ALL:
        return False
    found = turn(loss, lower_is_better=True)
    return found.beyond(TURNED_NATS) and found.worsening > max(LOST_SHARE * (loss.values[0] - found.best), MUCH_NATS)


def _has_blown_up(loss: Curve) -> bool:
    """Whether a loss has risen again by most of what it had fallen, and abruptly."""
    if not _has_lost_most(loss):
        return False
    worsening = turn(loss, lower_is_better=True).worsening
    apart = max(round(ABRUPT_POINTS * len(loss)), 1)
    jump = float((loss.values[apart:] - loss.values[:-apart]).max())
    return worsening > LOST_NATS and jump > ABRUPT_SHARE * worsening


@dataclass(frozen=True)
class _Prospect:
    """What twice the steps are expected to bring, against what is worth the money."""

    gain: float
    worth: float
    deviations: float
    """How far the gain lies above what is worth it, in standard deviations of the gain."""
    significant: bool
    """Whether chance is excluded as the cause of the slope."""
    a_sign: bool
    """Whether the slope is a sign of a gain, though chance may not be excluded."""

    @classmethod
    def of(cls, slope: Slope, better: int, worth: float) -> _Prospect:
        gain = better * slope.next_doubling
        deviations = (gain - worth) / max(slope.next_error, math.ulp(1.0))
        a_sign = better * slope.per_doubling > SIGN_ERRORS * slope.error
        return cls(gain, worth, deviations, slope.significant, a_sign)

    @property
    def gains(self) -> bool:
        """Whether a curve gets better by more than chance, and will by what is worth the money."""
        return self.significant and self.gain > self.worth

    @property
    def may_gain(self) -> bool:
        """Whether it looks as if a curve got better by what is worth the money, though chance is not excluded."""
        return self.a_sign and self.gain > self.worth

    @property
    def confidence(self) -> Confidence:
        """High far from the bound between improving and converged, low near it."""
        # Where chance explains the slope, a gain above the bound speaks against the verdict.
        distance = abs(self.deviations) if self.gains or self.gain <= self.worth else 0.0
        return "high" if distance >= SURE_DEVIATIONS else "medium" if distance >= LIKELY_DEVIATIONS else "low"

    @property
    def doubt(self) -> str:
        """What makes a verdict unsure, to be said after its reason; empty if it is sure."""
        if self.confidence != "low" or not (self.gains or self.gain <= self.worth):
            return ""
        return (
            f"; twice the steps are expected to bring {self.gain:.2g}, about as much as is worth them ({self.worth:g})"
        )


def _gains(slope: Slope | None, better: int, worth: float) -> bool:
    """Whether a curve gets better by more than chance, and will by what is worth the money."""
    return slope is not None and _Prospect.of(slope, better, worth).gains


def _forecast(curve: Curve, slope: Slope | None, better: float) -> Forecast | None:
    """The curve at twice the steps; a curve that gets worse is not expected to be trained on."""
    if slope is None:
        return None
    now, error = level_at_end(curve), 2 * (slope.error + noise(curve.values))
    last, coming = (max(better * gain, 0.0) for gain in (slope.per_doubling, slope.next_doubling))
    gains = (min(NEXT_DOUBLING[0] * last, coming), coming, max(NEXT_DOUBLING[2] * last, coming))
    low, middle, high = sorted(now + better * gain for gain in gains)
    most = 100.0 if better > 0 else math.inf
    return Forecast(*(min(max(value, 0.0), most) for value in (low - error, middle, high + error)))
