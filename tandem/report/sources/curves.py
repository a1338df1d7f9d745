"""What the curves of all formats have in common: scales of BLEU, step times without evaluations, units, sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tandem.report.record import Curve, Session

Points = list[tuple[float, float]]

# A model fits its training text at least about as well as other text. Where its training loss is more than twice the
# loss on other text, the one is summed over a sentence or a batch and the other is per token.
_OTHER_UNIT = 2.0
# A model that is as unsure of a token as if it chose among 100 cannot translate: its BLEU is about 0, never 5 to 100.
# The best loss of the run counts, since a good model may still diverge or overfit later.
_HOPELESS_LOSS = 4.6
# The last part of a run, in which losses change little.
_LATE_SHARE = 0.25
# Three standard deviations, in which the median absolute deviation of a normal distribution is 1 / 1.4826.
_BEYOND_NOISE = 3 * 1.4826
# Evaluations so far apart count steps; closer ones may be epochs, and the one called 0 comes after the first.
_FEWEST_STEPS = 10.0
# A break in the work: longer than an evaluation of a small test set, and far longer than the usual silence.
_BREAK_SECONDS = 600.0
_BREAK_RATIO = 10.0


@dataclass(frozen=True)
class Bleu:
    """A BLEU curve from 0 to 100, and what had to be done to it."""

    curve: Curve
    note: str | None
    problems: tuple[str, ...]


def bleu_curve(points: Points, eval_loss: Curve) -> Bleu:
    """Bring BLEU to the scale from 0 to 100, and leave out a value that no untrained model can have.

    Values up to 1 may be shares, or the BLEU of a model that learnt nothing; its loss in nats per token tells.
    """
    curve = Curve.of(points)
    problems: tuple[str, ...] = ()
    counts_steps = (usual_spacing(curve) or 0.0) >= _FEWEST_STEPS
    if counts_steps and curve.at[0] <= 0 and curve.values[0] > np.nanmax([0.0, *curve.values[1:]]):
        curve = Curve(curve.at[1:], curve.values[1:])
        problems = ("BLEU at step 0, before any training, is above all later ones, so it was left out.",)
    finite = curve.finite.values
    if len(finite) == 0 or finite.max() > 1 or finite.max() <= 0:
        return Bleu(curve, None, problems)
    losses = eval_loss.finite.values
    if len(losses) and losses.min() > _HOPELESS_LOSS:
        note = (
            f"no value is above 1, but the evaluation loss never falls below {_HOPELESS_LOSS} (a perplexity of 100), "
            "so the scale is taken to be 0 to 100"
        )
        return Bleu(curve, note, problems)
    note = "no value is above 1, so the scale is taken to be 0 to 1 and was multiplied by 100"
    return Bleu(Curve(curve.at, curve.values * 100), note, problems)


@dataclass(frozen=True)
class Stretch:
    """The mean time of a step from one line of a log to the next."""

    first: float
    last: float
    seconds: float


def training_only(stretches: Sequence[Stretch], evaluated: Iterable[float]) -> tuple[Curve, dict[str, float]]:
    """Step times of the stretches in which nothing was evaluated, and the seconds of both, if they can be told apart.

    Programs that print the time since their last line count an evaluation in between as training. How long it took
    is the excess of such stretches over the usual step, if that is beyond the noise; a checkpoint that is saved on the
    occasion is in it.
    """
    moments = np.sort(np.array(list(evaluated), dtype=np.float64))
    quiet: list[Stretch] = []
    loud: list[Stretch] = []
    for stretch in stretches:
        before, after = np.searchsorted(moments, [stretch.first, stretch.last])
        (loud if after > before else quiet).append(stretch)
    if not quiet:
        return Curve.of((stretch.last, stretch.seconds) for stretch in loud), {}
    times = np.array([stretch.seconds for stretch in quiet])
    usual = float(np.median(times))
    noise = _BEYOND_NOISE * float(np.median(np.abs(times - usual)))
    excess = [stretch.seconds - usual for stretch in loud]
    seconds: dict[str, float] = {}
    if excess and float(np.median(excess)) > noise:
        spent = sum(more * (stretch.last - stretch.first) for more, stretch in zip(excess, loud, strict=True))
        trained = sum(stretch.seconds * (stretch.last - stretch.first) for stretch in stretches) - spent
        seconds = {"other": float(trained), "evaluation": float(spent)}
    return Curve.of((stretch.last, stretch.seconds) for stretch in quiet), seconds


def usual_spacing(curve: Curve) -> float | None:
    """Steps from one point of a curve to the next, as a rule."""
    return float(np.median(np.diff(curve.at))) if len(curve) > 1 else None


def same_unit(training: Curve, evaluation: Curve) -> bool:
    """Whether the two losses can be per token both, by their size late in the run."""
    ends = [_late(curve.finite) for curve in (training, evaluation)]
    if ends[0] is None or ends[1] is None or ends[1] <= 0:
        return True
    return ends[0] <= _OTHER_UNIT * ends[1]


def _late(curve: Curve) -> float | None:
    if len(curve) == 0:
        return None
    return float(np.median(curve.values[-max(1, round(len(curve) * _LATE_SHARE)) :]))


def whole_session(*curves: Curve) -> tuple[Session, ...]:
    """One session that covers all of the curves; none if they are empty."""
    filled = [curve for curve in curves if len(curve)]
    if not filled:
        return ()
    first = min(float(curve.at[0]) for curve in filled)
    return (Session(first_step=first, last_step=max(float(curve.at[-1]) for curve in filled)),)


def repeated(sessions: Sequence[Session]) -> float:
    """Steps that were taken again, because a session began before the end of the one before it."""
    return sum(max(0.0, session.last_step - later.first_step) for session, later in pairwise(sessions))


def sessions_by_breaks(moments: Points) -> tuple[Session, ...]:
    """Sessions from (step, moment) of everything that was written: a long silence separates two of them."""
    ordered = sorted(moments, key=lambda point: point[1])
    if not ordered:
        return ()
    silences = np.diff([when for _, when in ordered])
    # Several values are written at one moment; only the silences between moments tell the pace.
    paces = silences[silences > 0]
    longest = max(_BREAK_SECONDS, _BREAK_RATIO * float(np.median(paces))) if len(paces) else _BREAK_SECONDS
    bounds = [0, *(int(place) + 1 for place in np.flatnonzero(silences > longest)), len(ordered)]
    sessions = []
    for begin, end in pairwise(bounds):
        part = ordered[begin:end]
        steps = [step for step, _ in part]
        sessions.append(
            Session(first_step=min(steps), last_step=max(steps), started=part[0][1], ended=part[-1][1], reason=None)
        )
    return tuple(sessions)
