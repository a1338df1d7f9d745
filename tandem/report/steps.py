"""How long steps took: the middle, the spread, and the stretches that stand out with what they were spent on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.report.record import RunRecord

# A stretch stands out if it is longer than the middle one by so many times the usual spread, and by a tenth at least:
# in a run as even as clockwork a thousandth would stand out, too.
OUTLYING_SPREADS, LEAST_EXCESS = 5.0, 0.1
# More would be a list, not a finding.
LISTED_OUTLIERS = 5


@dataclass(frozen=True)
class Outlier:
    """A stretch of steps that took long."""

    step: float
    seconds: float
    cause: str
    """The part that grew most; `unknown` without a clock."""


@dataclass(frozen=True)
class StepFacts:
    """The time of a step."""

    points: int
    median: float
    mean: float
    low: float
    """A quarter of the stretches were shorter."""
    high: float
    """A quarter were longer."""
    longest: float
    outliers: tuple[Outlier, ...]
    """Longest first."""
    outlier_share: float

    @property
    def spread(self) -> float:
        return (self.high - self.low) / self.median if self.median else 0.0


def look_at_steps(run: RunRecord) -> StepFacts | None:
    """None where no step was timed."""
    curve = run.step_seconds.finite
    if not len(curve):
        return None
    low, median, high = (float(value) for value in np.percentile(curve.values, (25, 50, 75)))
    bound = median + max(OUTLYING_SPREADS * (high - low), LEAST_EXCESS * median)
    outlying = np.flatnonzero(curve.values > bound)
    longest = outlying[np.argsort(-curve.values[outlying])][:LISTED_OUTLIERS]
    return StepFacts(
        points=len(curve),
        median=median,
        mean=float(curve.values.mean()),
        low=low,
        high=high,
        longest=float(curve.values.max()),
        outliers=tuple(
            Outlier(float(curve.at[index]), float(curve.values[index]), _cause(run, float(curve.at[index])))
            for index in longest
        ),
        outlier_share=len(outlying) / len(curve),
    )


def _cause(run: RunRecord, step: float) -> str:
    """The part that took most more than usual in the stretch that ends at a step."""
    excess = {}
    for part, curve in run.parts.items():
        index = int(np.searchsorted(curve.at, step))
        # Evaluating and saving are not counted among the seconds of a step.
        if part not in ("evaluation", "checkpoint") and index < len(curve):
            excess[part] = float(curve.values[index] - np.median(curve.values))
    return max(excess, key=lambda part: excess[part]) if excess else "unknown"
