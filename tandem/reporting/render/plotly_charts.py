"""Charts as the data that the page's script draws: thinned, rounded, safe inside a script element."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.reporting.answers import Chart
from tandem.reporting.render.thin_curve import FEWEST, thin, thin_together
from tandem.reporting.run_record import Curve

POINTS_OF_CHART = 20_000
"""Most points of a chart, all lines together: more make zooming stutter, and no screen shows more."""
DIGITS = 6
"""Significant digits of a value; a hover shows fewer, and the page gets a third smaller."""


@dataclass(frozen=True)
class Drawing:
    """A chart, ready to be drawn."""

    chart: Chart
    curves: tuple[Curve, ...]
    """The thinned curves of its traces."""

    @classmethod
    def of(cls, chart: Chart) -> Drawing:
        """Thin the curves of a chart; every line gets the same share of the points."""
        curves = [trace.curve for trace in chart.traces]
        share = max(FEWEST, POINTS_OF_CHART // max(1, len(curves)))
        thinned = thin_together(curves, share) if chart.stacked else [thin(curve, share) for curve in curves]
        return cls(chart, tuple(thinned))

    @property
    def thinned_from(self) -> int:
        """How many points the longest line had, if not all of them are drawn; else 0."""
        lost = [len(trace.curve) for trace, curve in zip(self.chart.traces, self.curves, strict=True)
                if len(curve) < len(trace.curve)]  # fmt: skip
        return max(lost, default=0)

    def as_dict(self) -> dict[str, Any]:
        chart = self.chart
        return {
            "id": chart.id,
            "stacked": chart.stacked,
            "marks": [[step, word] for step, word in chart.marks if math.isfinite(step)],
            "traces": [
                {"name": trace.name, "dashed": trace.dashed, "x": numbers(curve.at), "y": numbers(curve.values)}
                for trace, curve in zip(chart.traces, self.curves, strict=True)
            ],
        }


def drawings(charts: Iterable[Chart]) -> list[Drawing]:
    """The charts that have anything to show."""
    return [Drawing.of(chart) for chart in charts if any(len(trace.curve.finite) for trace in chart.traces)]


def span(drawn: Sequence[Drawing]) -> tuple[float, float]:
    """The first and the last step of all charts."""
    curves = [curve for drawing in drawn for curve in drawing.curves if len(curve)]
    return min(float(curve.at[0]) for curve in curves), max(float(curve.at[-1]) for curve in curves)


def embedded(axis: str, drawn: Sequence[Drawing]) -> str:
    """All that the script needs, as JSON that no browser takes for the end of the script."""
    data = {"axis": axis, "span": span(drawn) if drawn else [], "charts": [drawing.as_dict() for drawing in drawn]}
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def numbers(values: NDArray[np.float64]) -> list[float | int | None]:
    """Values rounded to what can be seen; None, which draws a gap, for what is not finite."""
    finite = np.isfinite(values)
    safe = np.where(finite, values, 0.0)
    if np.array_equal(safe, np.rint(safe)) and np.abs(safe).max(initial=0.0) < np.iinfo(np.int64).max:
        plain = safe.astype(np.int64).astype(object)
    else:
        exponent = np.floor(np.log10(np.abs(safe), where=safe != 0, out=np.zeros_like(safe)))
        # Beyond this, ten to that power is no longer exact, and the value is too small or large to be drawn anyway.
        scale = 10.0 ** np.clip(DIGITS - 1 - exponent, 0, 22)
        plain = (np.rint(safe * scale) / scale).astype(object)
    plain[~finite] = None
    listed: list[float | int | None] = plain.tolist()
    return listed
