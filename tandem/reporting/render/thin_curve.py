"""Fewer points that look the same: what a chart can show of a curve, its extremes kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.reporting.run_record import Curve

ENDS = 2
"""The first and the last point are always kept."""
KEPT_OF_BUCKET = 3
"""Its smallest, its largest and, if there is one, its first value that is not finite: a gap must stay one."""
FEWEST = ENDS + KEPT_OF_BUCKET
"""Less than one bucket and the ends cannot be asked for."""

Indices = NDArray[np.intp]


def thin(curve: Curve, most: int) -> Curve:
    """At most `most` points of the curve."""
    indices = indices_to_keep(curve.values, most)
    return Curve(curve.at[indices], curve.values[indices])


def thin_together(curves: Sequence[Curve], most: int) -> list[Curve]:
    """At most `most` points of each curve, all at the same steps, as the layers of a stack need them.

    The extremes of every layer and of their sum are kept. Where a layer has no value it gets one that is not finite.
    """
    at = np.unique(np.concatenate([curve.at for curve in curves])) if curves else np.zeros(0)
    layers = [_on_steps(curve, at) for curve in curves]
    if len(at) > most:
        watched = [*layers, np.nansum(layers, axis=0)]
        share = max(FEWEST, most // len(watched))
        kept = np.unique(np.concatenate([indices_to_keep(values, share) for values in watched]))
        at, layers = at[kept], [values[kept] for values in layers]
    return [Curve(at, values) for values in layers]


def indices_to_keep(values: NDArray[np.float64], most: int) -> Indices:
    """Where the values are that must be kept for a line of at most `most` points to look as it did."""
    assert most >= FEWEST, f"a curve cannot be thinned to {most} points"
    count = len(values)
    if count <= most:
        return np.arange(count)
    # A bucket is a row; the last ones are filled up with what is never an extreme.
    buckets = (most - ENDS) // (KEPT_OF_BUCKET - bool(np.isfinite(values).all()))
    width = -(-count // buckets)
    rows = -(-count // width)
    filled = np.full(rows * width, np.nan)
    filled[:count] = values
    table = filled.reshape(rows, width)
    finite = np.isfinite(table)
    starts = np.arange(rows) * width
    lowest = starts + np.where(finite, table, np.inf).argmin(axis=1)
    highest = starts + np.where(finite, table, -np.inf).argmax(axis=1)
    gap = starts + finite.argmin(axis=1)
    with_gap = ~finite.all(axis=1) & (gap < count)
    return np.unique(np.concatenate([[0], lowest, highest, gap[with_gap], [count - 1]]))


def _on_steps(curve: Curve, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """The curve's values at those steps, which include all of its own."""
    values = np.full(len(at), np.nan)
    values[np.searchsorted(at, curve.at)] = curve.values
    return values
