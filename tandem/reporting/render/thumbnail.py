"""A chart as a small drawing (SVG) beside the answer that it proves; it needs no script, and prints as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from tandem.reporting.answers import Chart
from tandem.reporting.render.plotly_charts import Drawing
from tandem.reporting.render.thin_curve import FEWEST, thin, thin_together
from tandem.reporting.run_record import Curve, FloatArray

WIDTH, HEIGHT = 240.0, 92.0
TOP, BOTTOM = 6.0, 76.0
"""Where the largest and the smallest value lie; the steps are written below."""
LEFT = 34.0
POINTS = 240
"""More than there are pixels."""
COLOURS = 8
# As in the chart itself: values that come this near to zero begin there.
ZERO_BASE = 0.5


def thumbnail(drawing: Drawing, span: tuple[float, float], axis: str) -> str:
    """The drawing, with the range of its values and steps; `span` are the steps that all charts show."""
    chart = drawing.chart
    if chart.stacked:
        curves = _cumulated(thin_together(drawing.curves, max(FEWEST, POINTS)))
    else:
        curves = [thin(curve, POINTS) for curve in drawing.curves]
    low, high = _range(curves, chart.stacked)
    lines = list(_layers(curves, span, low, high) if chart.stacked else _lines(chart, curves, span, low, high))
    label = f"{chart.title}, {axis}s {span[0]:,.0f} to {span[1]:,.0f}: {_in_words(drawing)}"
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{escape(label)}">'
        f'<path class="frame" d="M{LEFT:.0f} {TOP:.0f}V{BOTTOM:.0f}H{WIDTH:.0f}"/>'
        f"{''.join(lines)}"
        f'<text x="{LEFT - 4:.0f}" y="{TOP + 7:.0f}" text-anchor="end">{_short(high)}</text>'
        f'<text x="{LEFT - 4:.0f}" y="{BOTTOM:.0f}" text-anchor="end">{_short(low)}</text>'
        f'<text x="{LEFT:.0f}" y="{HEIGHT - 2:.0f}">{span[0]:,.0f}</text>'
        f'<text x="{WIDTH:.0f}" y="{HEIGHT - 2:.0f}" text-anchor="end">{axis} {span[1]:,.0f}</text></svg>'
    )


def _in_words(drawing: Drawing) -> str:
    """The first and the last value of each line, for those who do not see it."""
    ends = [
        f"{trace.name} from {_short(curve.finite.values[0])} to {_short(curve.finite.values[-1])}"
        for trace, curve in zip(drawing.chart.traces, drawing.curves, strict=True)
        if len(curve.finite)
    ]
    return "; ".join(ends)


def _cumulated(curves: Sequence[Curve]) -> list[Curve]:
    """Layers as the upper edges of a stack."""
    edges = np.cumsum([np.nan_to_num(curve.values, posinf=0.0, neginf=0.0) for curve in curves], axis=0)
    return [Curve(curve.at, edge) for curve, edge in zip(curves, edges, strict=True)]


def _range(curves: Sequence[Curve], from_zero: bool) -> tuple[float, float]:
    values = np.concatenate([curve.finite.values for curve in curves])
    low, high = float(values.min()), float(values.max())
    if from_zero or 0 <= low < ZERO_BASE * high:
        low = 0.0
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _places(curve: Curve, span: tuple[float, float], low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Where the points lie in the drawing."""
    # Divided first: the difference of values that are both huge may be infinite.
    share = (curve.values / (high - low)) - low / (high - low)
    return LEFT + (curve.at - span[0]) / ((span[1] - span[0]) or 1.0) * (WIDTH - LEFT), BOTTOM - share * (BOTTOM - TOP)


def _lines(chart: Chart, curves: Sequence[Curve], span: tuple[float, float], low: float, high: float) -> Iterator[str]:
    # Where several lines are dashed, each belongs to the whole line before it and has its colour.
    paired = sum(trace.dashed for trace in chart.traces) > 1
    colour = -1
    for trace, curve in zip(chart.traces, curves, strict=True):
        colour += not (paired and trace.dashed and colour >= 0)
        dashed = " dashed" if trace.dashed else ""
        path = _path(*_places(curve, span, low, high))
        yield f'<path class="line s{colour % COLOURS + 1}{dashed}" d="{path}"/>'


def _layers(curves: Sequence[Curve], span: tuple[float, float], low: float, high: float) -> Iterator[str]:
    # The whole stack first, then all but its uppermost layer over it, and so on.
    for index in reversed(range(len(curves))):
        if len(curves[index]):
            x, y = _places(curves[index], span, low, high)
            yield f'<path class="layer s{index % COLOURS + 1}" d="{_path(x, y)}V{BOTTOM:.0f}H{x[0]:.1f}Z"/>'


def _path(x: FloatArray, y: FloatArray) -> str:
    """A line through the points; a value that is not finite leaves a gap."""
    steps, drawn = [], False
    for across, down in zip(x.tolist(), y.tolist(), strict=True):
        finite = np.isfinite(down)
        if finite:
            steps.append(f"{'L' if drawn else 'M'}{across:.1f} {down:.1f}")
        drawn = bool(finite)
    # A point alone would not be seen.
    return "".join(steps) + ("h.1" if len(steps) == 1 else "")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
