"""Student's t test: whether two groups of runs differ by more than their seeds make runs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

SURE = 0.95
"""What an interval holds."""
_ENOUGH = 200  # halvings, after which no float changes any more


@dataclass(frozen=True)
class SeedTest:
    """The difference of two groups' means against what seeds alone do."""

    spread: float
    """Standard deviation over seeds, taken to be the same in both groups."""
    freedom: int
    """Degrees of freedom: how many runs there are beyond one a group."""
    low: float
    high: float
    """The interval that holds the difference of recipes with 95 %, as far as seeds are concerned."""
    p: float

    @property
    def least_telling(self) -> float:
        """The smallest difference that so few runs, so spread, could tell from chance."""
        return (self.high - self.low) / 2


def compare_groups(first: Sequence[float], second: Sequence[float]) -> SeedTest | None:
    """The test of two groups' scores; None where neither group has two runs, and nothing tells how seeds spread.

    A group of one run borrows the spread of the other.
    """
    freedom = len(first) + len(second) - 2
    if freedom < 1:
        return None
    squares = sum(spread_of(group) ** 2 * (len(group) - 1) for group in (first, second))
    spread = math.sqrt(squares / freedom)
    error = spread * math.sqrt(1 / len(first) + 1 / len(second))
    difference = fmean(second) - fmean(first)
    reach = error * quantile(SURE, freedom)
    p = 1 - probability_within(abs(difference) / error, freedom) if error else float(not difference)
    return SeedTest(spread, freedom, difference - reach, difference + reach, p)


def spread_of(scores: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 of one run alone."""
    return stdev(scores) if len(scores) > 1 else 0.0


def probability_within(t: float, freedom: int) -> float:
    """How likely Student's t of so many degrees of freedom lies between -t and t.

    The finite sums for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for number in range(2 + odd, freedom - 1, 2):
        term *= (number - 1) / number * cosine**2
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))


def quantile(probability: float, freedom: int) -> float:
    """The t within which Student's t lies with this probability."""
    low, high = 0.0, 1.0
    while probability_within(high, freedom) < probability:
        high *= 2
    for _ in range(_ENOUGH):
        middle = (low + high) / 2
        low, high = (middle, high) if probability_within(middle, freedom) < probability else (low, middle)
    return high
