"""The small drawing beside an answer: values in their places, gaps, layers, and words for those who do not see it."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tandem.reporting.answers import Chart, Trace
from tandem.reporting.render.plotly_charts import Drawing
from tandem.reporting.render.thumbnail import BOTTOM, LEFT, TOP, WIDTH, thumbnail
from tandem.reporting.run_record import Curve

NAN = float("nan")


def drawn(*curves: Curve, span: tuple[float, float] = (0, 100), **options: Any) -> str:
    traces = tuple(Trace(name=f"line {index}", curve=curve) for index, curve in enumerate(curves))
    return thumbnail(Drawing.of(Chart(id="any", title="Any", y_label="s", traces=traces, **options)), span, "step")


def paths(svg: str) -> list[str]:
    return re.findall(r'<path class="(?:line|layer)[^"]*" d="([^"]*)"', svg)


def test_the_corners() -> None:
    (path,) = paths(drawn(Curve.of([(0, 1.0), (100, 5.0)])))
    assert path == f"M{LEFT:.1f} {BOTTOM - 0.2 * (BOTTOM - TOP):.1f}L{WIDTH:.1f} {TOP:.1f}"


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    (path,) = paths(drawn(Curve.of([(0, 1.0), (25, 2.0), (50, NAN), (75, 2.0), (100, 3.0)])))
    assert re.sub(r"[\d. ]", "", path) == "MLML"


def test_layers_lie_on_each_other() -> None:
    upper, lower = paths(drawn(Curve.of([(0, 1.0), (100, 1.0)]), Curve.of([(0, 3.0), (100, 3.0)]), stacked=True))
    assert upper.startswith(f"M{LEFT:.1f} {TOP:.1f}")
    assert lower.startswith(f"M{LEFT:.1f} {BOTTOM - 0.25 * (BOTTOM - TOP):.1f}")


def test_it_says_what_it_shows() -> None:
    svg = drawn(Curve.of([(0, 7.5), (100, 0.25)]))
    assert 'role="img" aria-label="Any, steps 0 to 100: line 0 from 7.5 to 0.25"' in svg


@given(st.lists(st.floats(width=32), min_size=1, max_size=50).filter(lambda values: any(abs(v) < 1e38 for v in values)))
def test_nothing_leaves_the_drawing(values: list[float]) -> None:
    svg = drawn(Curve.of(enumerate(values)))
    for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", "".join(paths(svg))):
        assert LEFT <= float(x) <= WIDTH
        assert TOP - 0.1 <= float(y) <= BOTTOM + 0.1
    assert "nan" not in "".join(paths(svg))
