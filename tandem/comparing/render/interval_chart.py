"""Differences with their intervals as a chart: plain HTML, which prints, shrinks and changes its colours by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tandem.comparing.comparison import Contrast, MetricDifference
from tandem.comparing.verdict_words import signed

MARGIN = 0.06
"""Share of a chart's width that stays free beyond the widest interval."""
MOST_TICKS = 6
SMALLEST = 0.1
"""Narrowest half of a scale: where there is no difference, there is none to enlarge."""


def interval_charts(contrasts: Sequence[Contrast]) -> Iterator[str]:
    """A chart for each metric, with a row for each that is compared with the first."""
    yield f'<div class="intervals" aria-label="Differences from {escape(contrasts[0].first.title)}">'
    for place in range(len(contrasts[0].differences)):
        rows = [(contrast.second.title, contrast.differences[place]) for contrast in contrasts]
        yield from _chart(contrasts[0].first.title, rows)
    yield "</div>"


def _chart(baseline: str, rows: Sequence[tuple[str, MetricDifference]]) -> Iterator[str]:
    metric, lower = rows[0][1].metric, rows[0][1].lower_is_better
    scale = Scale.around([end for _, found in rows for end in (found.low, found.high, *_seed_ends(found))])
    yield '<figure class="chart interval-chart">'
    yield f"<h3>{escape(metric)}</h3>"
    yield f"<figcaption>{'Less' if lower else 'More'} is better; 0 is {escape(baseline)}.</figcaption>"
    yield '<div class="rows">'
    for name, found in rows:
        yield from _row(name, found, scale)
    yield f'<div class="ticks" aria-hidden="true">{"".join(_ticks(scale))}</div></div>'
    if any(found.seeds for _, found in rows):
        yield '<p class="unit">Bar: 95 % by sentences. Thin line: 95 % by seeds.</p>'
    yield "</figure>"


def _row(name: str, found: MetricDifference, scale: Scale) -> Iterator[str]:
    tone = {"better": "good", "worse": "attention"}.get(found.verdict, "neutral")
    numbers = f"{signed(found.difference)}, 95 % between {signed(found.low)} and {signed(found.high)}"
    yield f'<p class="row-name"><span>{escape(name)}</span> <b>{signed(found.difference)}</b></p>'
    yield f'<div class="track {tone}" role="img" aria-label="{escape(name)}: {numbers}">'
    yield from (f'<i class="grid" style="left:{scale.at(tick)}"></i>' for tick in scale.ticks)
    yield f'<i class="zero" style="left:{scale.at(0)}"></i>'
    if ends := _seed_ends(found):
        yield f'<i class="whisker" style="left:{scale.at(ends[0])};right:{scale.from_right(ends[1])}"></i>'
    yield f'<i class="bar" style="left:{scale.at(found.low)};right:{scale.from_right(found.high)}"></i>'
    yield f'<i class="mean" style="left:{scale.at(found.difference)}"></i></div>'


def _seed_ends(found: MetricDifference) -> tuple[float, ...]:
    return () if found.seeds is None else (found.seeds.low, found.seeds.high)


def _ticks(scale: Scale) -> Iterator[str]:
    for tick in scale.ticks:
        yield f'<span style="left:{scale.at(tick)}">{tick:g}</span>'.replace("-", "\N{MINUS SIGN}")


class Scale:
    """Values on the width of a chart."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @classmethod
    def around(cls, values: Sequence[float]) -> Scale:
        """A scale that shows all values and nothing (0)."""
        low, high = min(0.0, *values), max(0.0, *values)
        low, high = (low, high) if high - low >= SMALLEST else (-SMALLEST, SMALLEST)
        room = MARGIN * (high - low)
        return cls(low - room, high + room)

    @property
    def ticks(self) -> list[float]:
        """Round values within, 0 among them."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / MOST_TICKS))
        step = next(step * factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= MOST_TICKS)
        return [number * step for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]

    def at(self, value: float) -> str:
        return f"{100 * self._share(value):.2f}%"

    def from_right(self, value: float) -> str:
        return f"{100 * (1 - self._share(value)):.2f}%"

    def _share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)
