"""Statistics of step times: median, spread, and outliers with their causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.reporting.judge.processor_share import ProcessorFacts
from tandem.reporting.run_record import NOT_TRAINING, RunRecord

# A stretch stands out if it is longer than the middle one by so many times the usual spread, and by a tenth at least:
# in a very even run a thousandth would stand out, too.
OUTLYING_SPREADS, LEAST_EXCESS = 5.0, 0.1
# Outliers that are listed, longest first.
LISTED_OUTLIERS = 5


@dataclass(frozen=True)
class Outlier:
    """A stretch of steps that took long."""

    step: float
    seconds: float
    cause: str
    """Who else had the processors, or else the part that grew most; `unknown` without a clock."""


@dataclass(frozen=True)
class StepFacts:
    """Step times over the stretches of a run."""

    median_seconds: float
    mean_seconds: float
    middle_half_seconds_range: list[float]
    """Three quarters of the stretches were longer than the first, three quarters shorter than the second."""
    longest_seconds: float
    stretches: int
    outlier_share: float
    outliers: list[Outlier]
    """Longest first."""

    @property
    def spread(self) -> float:
        low, high = self.middle_half_seconds_range
        return (high - low) / self.median_seconds if self.median_seconds else 0.0


def summarise_steps(run: RunRecord, processors: ProcessorFacts | None = None) -> StepFacts | None:
    """The statistics of a run's step times; None if it has none."""
    curve = run.step_seconds.finite
    if not len(curve):
        return None
    low, median, high = (float(value) for value in np.percentile(curve.values, (25, 50, 75)))
    bound = median + max(OUTLYING_SPREADS * (high - low), LEAST_EXCESS * median)
    outlying = np.flatnonzero(curve.values > bound)
    longest = outlying[np.argsort(-curve.values[outlying])][:LISTED_OUTLIERS]
    points = [(float(curve.at[index]), float(curve.values[index])) for index in longest]
    return StepFacts(
        median_seconds=median,
        mean_seconds=float(curve.values.mean()),
        middle_half_seconds_range=[low, high],
        longest_seconds=float(curve.values.max()),
        stretches=len(curve),
        outlier_share=len(outlying) / len(curve),
        outliers=[Outlier(step, seconds, _cause(run, processors, step)) for step, seconds in points],
    )


def _cause(run: RunRecord, processors: ProcessorFacts | None, step: float) -> str:
    """Why the stretch that ends at a step took long: who else had the processors, or the part that grew most."""
    excess = {}
    for part, curve in run.parts.items():
        index = int(np.searchsorted(curve.at, step))
        # Evaluating and saving are not counted among the seconds of a step.
        if part not in NOT_TRAINING and index < len(curve):
            excess[part] = float(curve.values[index] - np.median(curve.values))
    grown = max(excess, key=lambda part: excess[part]) if excess else "unknown"
    # Compute, and no other part, grows when somebody else computes, too.
    by = processors.by_at(step) if processors is not None and grown in ("compute", "unknown") else None
    return by or grown
