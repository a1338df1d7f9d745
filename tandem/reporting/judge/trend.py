"""Trend of a learning curve with its uncertainty: noise, recent slope, turning point, forecast."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tandem.reporting.run_record import Curve, FloatArray, robust_spread

# The recent part of a curve is what came after half of its steps: learning curves are about straight over a doubling.
RECENT_FRACTION = 0.5
FEWEST_FOR_A_SLOPE = 3
# A line through three points proves nothing: where evaluations are rare, older ones are called in up to this number.
ENOUGH_FOR_A_SLOPE = 5
# A level is the median over this share of the points: enough to calm a point's noise, short against any trend. The best
# of many single points is mostly luck, so that it is three at least where there are enough.
LEVEL_SHARE, LEAST_WINDOW, FEWEST_FOR_A_WINDOW = 0.05, 3, 9
# The variance of a second difference of independent noise is this many times that of one point.
SECOND_DIFFERENCE_VARIANCE = 6
# A point so many standard deviations from the line through all others is left out, if nine in ten are not.
OUTLYING, MOST_KEPT = 6.0, 0.9
# Levels along a curve that are looked at: neighbouring ones of a long curve share almost all of their points.
MOST_LEVELS = 500
# Points that the line through all pairs is laid through: enough of them, and few enough to pair.
MOST_PAIRED = 200
# What the next doubling brings, as parts of what the last one brought: least, middle and most. Seen when public
# training curves of translators were cut off and compared with how they went on; they bend, they seldom break.
NEXT_DOUBLING = (0.1, 0.55, 1.0)
# Standard deviation of that part: nearly all of them lie between the least and the most. What a curve itself shows of
# its bend counts for more, the surer it is, but a bend may go on otherwise than it was.
USUAL_DEVIATION, LEAST_DEVIATION = (NEXT_DOUBLING[2] - NEXT_DOUBLING[0]) / 4, 0.1
# The median of three is this much noisier than their mean, but one bad point among them does not move it.
MEDIAN_OVER_MEAN = 1.25


@dataclass(frozen=True)
class Slope:
    """The change of a curve for each doubling of the steps, lately."""

    per_doubling: float
    error: float
    """Standard error; neighbouring points that err alike are counted as fewer points."""
    points: int
    next_doubling: float
    """The change to expect of the next doubling: less than the last one's, as far as the curve is seen to bend."""
    next_error: float
    """Standard deviation of that expectation."""

    @property
    def significant(self) -> bool:
        """Whether it is told apart from no change with some 95 % confidence."""
        return abs(self.per_doubling) > two_sided_t(self.points - 2) * self.error


@dataclass(frozen=True)
class Turn:
    """Where a curve was at its best, and how far it has come away from it."""

    best: float
    best_at: float
    worsening: float
    """From the best level to the level at the end, in the direction that is worse; never negative."""
    noise: float
    """Standard error of that difference."""

    def beyond(self, least: float) -> bool:
        """Whether the worsening is more than noise and more than what matters."""
        # Three standard errors, because the best is the best of many points, and luck has its share in it.
        return self.worsening > max(3 * self.noise, least)


def noise(values: FloatArray) -> float:
    """Standard deviation of one point around the curve, from how its neighbours bend; robust against jumps."""
    if len(values) < 2:
        return 0.0
    if len(values) <= FEWEST_FOR_A_SLOPE:
        # Too few to tell noise from trend: all of the movement may be noise.
        return float(np.abs(np.diff(values)).max()) / math.sqrt(2)
    return robust_spread(np.diff(values, 2)) / math.sqrt(SECOND_DIFFERENCE_VARIANCE)


def recent_slope(curve: Curve, since: float = 0.0, first_step: float = 0.0) -> Slope | None:
    """A straight line over the logarithm of the steps through the recent points; None if there are too few.

    Steps are counted from `first_step` on, where the run began. Only points after step `since` count; the first step,
    which has no logarithm then, never does.
    """
    kept = curve.at > max(since, first_step)
    curve = Curve(curve.at[kept] - first_step, curve.values[kept]).finite
    if len(curve) < FEWEST_FOR_A_SLOPE:
        return None
    recent = int(np.sum(curve.at >= curve.at[-1] * RECENT_FRACTION))
    recent = max(recent, min(ENOUGH_FOR_A_SLOPE, len(curve)))
    x, y = _without_outliers(np.log2(curve.at[-recent:]), curve.values[-recent:])
    slope, error = _line(x, y)
    part, deviation = _next_part(x, y, slope)
    return Slope(slope, error, len(x), part * slope, math.hypot(part * error, deviation * slope))


def _without_outliers(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Without the few points that lie far from where all others lead: one bad evaluation is no trend."""
    if len(x) <= ENOUGH_FOR_A_SLOPE:
        return x, y
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_PAIRED)).astype(int)
    across, up = np.subtract.outer(x[some], x[some]), np.subtract.outer(y[some], y[some])
    slope = float(np.median(up[across > 0] / across[across > 0]))
    residuals = y - slope * x
    usual = robust_spread(residuals)
    kept = np.abs(residuals - np.median(residuals)) <= OUTLYING * usual
    # A jump to another level leaves many points far out: that is no matter of a few bad ones.
    return (x[kept], y[kept]) if usual and kept.mean() > MOST_KEPT else (x, y)


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Slope and standard error of a straight line."""
    x = x - x.mean()
    spread = float(x @ x)
    slope = float(x @ y) / spread
    residuals = y - y.mean() - slope * x
    variance = float(residuals @ residuals) / max(len(x) - 2, 1) * _inflation(residuals)
    return slope, math.sqrt(variance / spread)


def _next_part(x: FloatArray, y: FloatArray, slope: float) -> tuple[float, float]:
    """What the next doubling brings as a part of this one's change, and the standard deviation of that.

    It is the usual part of public curves and what this curve's own bend promises, each weighed by how sure it is: one
    rule, whether there are few points or many.
    """
    later = x > (x[0] + x[-1]) / 2
    usual, spread = NEXT_DOUBLING[1], USUAL_DEVIATION
    if not slope or min(int(later.sum()), int((~later).sum())) < ENOUGH_FOR_A_SLOPE:
        return usual, spread
    (first, error), (second, later_error) = _line(x[~later], y[~later]), _line(x[later], y[later])
    # Nothing can be a share of a first half that goes nowhere.
    if abs(first) <= two_sided_t(int((~later).sum()) - 2) * error:
        return usual, spread
    bend = min(max(second / first, 0.0), 1.0)
    bend_error = math.hypot(later_error / first, bend * error / first)
    # Half a doubling each: what the second brought, times the bend, and times the bend again.
    own = first / slope * bend / 2 * (bend + bend**2)
    widest = min(bend + bend_error, 1.0)
    own_spread = abs(first / slope) * (widest + 1.5 * widest**2) * bend_error
    weight = spread**2 / (spread**2 + own_spread**2)
    left = spread * own_spread / math.hypot(spread, own_spread)
    return weight * own + (1 - weight) * usual, max(left, LEAST_DEVIATION)


def level_at_end(curve: Curve) -> float:
    """Median of the last points."""
    return float(np.median(curve.values[-_window(len(curve)) :]))


def level_around(curve: Curve, step: float) -> float:
    """Median of the points around a step."""
    window = _window(len(curve))
    nearest = int(np.abs(curve.at - step).argmin())
    start = min(max(nearest - window // 2, 0), len(curve) - window)
    return float(np.median(curve.values[start : start + window]))


def turn(curve: Curve, lower_is_better: bool) -> Turn:
    """The turning point of a finite curve of at least one point: its best level, and the change since."""
    sign = 1.0 if lower_is_better else -1.0
    window = _window(len(curve))
    windows = np.lib.stride_tricks.sliding_window_view(sign * curve.values, window)
    starts = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), MOST_LEVELS)).astype(int))
    smooth = np.median(windows[starts], axis=1)
    best = int(smooth.argmin())
    middle = int(starts[best]) + window // 2
    error = noise(curve.values) * math.sqrt(2 / window) * (MEDIAN_OVER_MEAN if window > 1 else 1.0)
    worsening = max(float(smooth[-1] - smooth[best]), 0.0)
    return Turn(sign * float(smooth[best]), float(curve.at[middle]), worsening, error)


def two_sided_t(degrees: int) -> float:
    """The bound that chance exceeds in one case of twenty, for a slope with so many degrees of freedom."""
    # The exact values for few degrees; beyond, an expansion that is right to a hundredth.
    exact = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57}
    return exact.get(degrees) or 1.96 + 2.4 / max(degrees, 1) + 2.8 / max(degrees, 1) ** 2


def _window(points: int) -> int:
    return max(LEAST_WINDOW if points >= FEWEST_FOR_A_WINDOW else 1, round(points * LEVEL_SHARE))


def _inflation(residuals: FloatArray) -> float:
    """How many times larger the variance is because neighbouring points err alike."""
    power = float(residuals @ residuals)
    # With fewer points the likeness of neighbours is itself nothing but noise.
    if len(residuals) < 8 or not power:
        return 1.0
    likeness = min(max(float(residuals[1:] @ residuals[:-1]) / power, 0.0), 0.99)
    return (1 + likeness) / (1 - likeness)
