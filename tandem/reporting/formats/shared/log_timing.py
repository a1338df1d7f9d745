"""Sessions and step times of a run, by the moments and times in its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tandem.reporting.run_record import Curve, TrainingSession, robust_spread

Points = list[tuple[float, float]]

# Standard deviations beyond which an excess is no noise.
_BEYOND_NOISE = 3
# A pause between two sessions: longer than an evaluation of a small test set, and far longer than the usual pause.
_BREAK_SECONDS = 600.0
_BREAK_RATIO = 10.0


class Stretch(NamedTuple):
    """The mean time of a step from one line of a log to the next."""

    first: float
    last: float
    seconds: float


@dataclass
class ProgramStart:
    """One start of a program: the steps and moments that its lines name."""

    first: float | None = None
    last: float = 0.0
    began: float | None = None
    spoke: float | None = None

    def reach(self, step: float) -> None:
        self.first = step if self.first is None else self.first
        self.last = step

    def speak(self, when: float | None) -> None:
        if when is not None:
            self.began = when if self.began is None else self.began
            self.spoke = when


def training_only(stretches: Sequence[Stretch], evaluated: Iterable[float]) -> tuple[Curve, dict[str, float]]:
    """Step times of the stretches in which nothing was evaluated, and the seconds of both, if they can be told apart.

    Programs that print the time since their last line count an evaluation in between as training. How long it took
    is the excess of such stretches over the usual step, if that is beyond the noise; a checkpoint that is saved on the
    occasion is in it.
    """
    first, last, seconds = np.array(stretches, dtype=np.float64).reshape(-1, 3).T
    evaluations = np.sort(np.array(list(evaluated), dtype=np.float64))
    loud = np.searchsorted(evaluations, last) > np.searchsorted(evaluations, first)
    quiet = ~loud
    if not quiet.any():
        return Curve.of(zip(last, seconds, strict=True)), {}
    excess = seconds[loud] - np.median(seconds[quiet])
    spent = {}
    if len(excess) and np.median(excess) > _BEYOND_NOISE * robust_spread(seconds[quiet]):
        evaluating = float(excess @ (last - first)[loud])
        spent = {"other": float(seconds @ (last - first)) - evaluating, "evaluation": evaluating}
    return Curve.of(zip(last[quiet], seconds[quiet], strict=True)), spent


def stretches_between(written: Points, sessions: Sequence[TrainingSession]) -> list[Stretch]:
    """Step times from the moments of steps; a pause between two sessions is no step."""
    breaks = [session.ended for session in sessions[:-1]]
    counted = np.searchsorted(np.array(breaks, dtype=np.float64), [when for _, when in written])
    return [
        Stretch(step, later, (until - since) / (later - step))
        for ((step, since), before), ((later, until), after) in pairwise(zip(written, counted, strict=True))
        if later > step and until > since and before == after
    ]


def usual_spacing(curve: Curve) -> float | None:
    """Steps from one point of a curve to the next, as a rule."""
    return float(np.median(np.diff(curve.at))) if len(curve) > 1 else None


def whole_session(*curves: Curve) -> tuple[TrainingSession, ...]:
    """One session that covers all of the curves; none if they are empty."""
    steps = [float(step) for curve in curves if len(curve) for step in (curve.at[0], curve.at[-1])]
    return (TrainingSession(first_step=min(steps), last_step=max(steps)),) if steps else ()


def repeated_steps(sessions: Sequence[TrainingSession]) -> float:
    """Steps that were taken again, because a session began before the end of the one before it."""
    return sum(max(0.0, session.last_step - later.first_step) for session, later in pairwise(sessions))


def sessions_by_breaks(moments: Points) -> tuple[TrainingSession, ...]:
    """Sessions from (step, moment) of everything that was written: a long pause separates two of them."""
    if not moments:
        return ()
    steps, whens = np.array(sorted(moments, key=lambda point: point[1])).T
    silences = np.diff(whens)
    # Several values are written at one moment; only the pauses between moments tell the pace.
    paces = silences[silences > 0]
    longest = max(_BREAK_SECONDS, _BREAK_RATIO * float(np.median(paces))) if len(paces) else _BREAK_SECONDS
    bounds = [0, *(np.flatnonzero(silences > longest) + 1), len(whens)]
    return tuple(
        TrainingSession(
            first_step=float(steps[begin:end].min()),
            last_step=float(steps[begin:end].max()),
            started=float(whens[begin]),
            ended=float(whens[end - 1]),
        )
        for begin, end in pairwise(bounds)
    )
