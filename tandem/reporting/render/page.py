"""A page that works offline: head, contents, body and charts to hover and zoom, all in one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from tandem.reporting.render.plotly_charts import Drawing, embedded
from tandem.reporting.render.wording import Tone

CODE = re.compile("`([^`]+)`")
SIGNATURE = re.compile(r"\w+:\w+(?:\||$)")
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:h|min|s|ms|%|[kMG]?B|[MG]bit)(?![a-z]))")
"""A line must not end between a number and its unit."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is on a page. Plain text is escaped where it is put in; `contents` and `body` are HTML."""

    kind: str
    """What the page is, above its name: `Tandem report`."""
    name: str
    state: str
    tone: Tone
    facts: str
    path: str
    skip: tuple[str, str]
    """Where the link for those who do not see the page leads, and its words."""
    summary: Sequence[str]
    remarks: tuple[str, Sequence[str]]
    """What must not be overlooked, below the summary: title and lines; nothing without a line."""
    contents: Iterable[str]
    body: Iterable[str]
    foot: str
    axis: str
    """What the charts' common axis counts."""
    drawn: Sequence[Drawing]
    style: str = ""
    """Style sheet of this kind of page, beside the common one."""


def render_page(page: Page) -> str:
    """The whole page as one text; nothing in it is fetched from anywhere."""
    title, remarks = page.remarks
    listed = "\n".join(f"<li>{prose(remark)}</li>" for remark in remarks)
    target, words = page.skip
    return Template(asset("page.html")).substitute(
        style=asset("page.css") + page.style,
        kind=escape(page.kind),
        name=escape(page.name),
        skip_to=escape(target),
        skip=escape(words),
        tone=page.tone,
        state=escape(page.state),
        source=escape(page.facts),
        path=escape(page.path),
        summary="\n".join(f"<p>{prose(line)}</p>" for line in page.summary),
        problems=f'<section class="problems"><h2>{escape(title)}</h2><ul>{listed}</ul></section>' if remarks else "",
        contents="\n".join(page.contents),
        body="\n".join(page.body),
        foot=escape(page.foot),
        data=embedded(page.axis, page.drawn),
        # No script of today's plotly ends an element; one that did would break the page.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        script=asset("page.js"),
    )


def asset(name: str) -> str:
    return files("tandem.reporting.render").joinpath(name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A sentence: safe, commands in backticks as code, numbers together with their units."""
    return CODE.sub(r"<code>\1</code>", BEFORE_UNIT.sub("&nbsp;", escape(text)))


def chart_links(title: str, drawn: Sequence[Drawing]) -> Iterator[str]:
    """Charts in a page's contents."""
    if drawn:
        yield f"<h2>{title}</h2><ul>"
        yield from (f"<li>{chart_link(drawing)}</li>" for drawing in drawn)
        yield "</ul>"


def chart_link(drawing: Drawing) -> str:
    return f'<a href="#chart-{escape(drawing.chart.id)}">{escape(drawing.chart.title)}</a>'


def chart_section(axis: str, drawn: Sequence[Drawing]) -> Iterator[str]:
    """The charts that stand together at the beginning of a page, with the words on how to zoom them."""
    if drawn:
        yield Template(asset("page.charts.html")).substitute(figures="\n".join(figures(axis, drawn)))


def figures(axis: str, drawn: Sequence[Drawing]) -> Iterator[str]:
    yield '<div class="figures">'
    for drawing in drawn:
        yield from _figure(axis, drawing)
    yield "</div>"


def zoom_buttons(drawn: Sequence[Drawing]) -> Iterator[str]:
    """The buttons that zoom all charts, at the end of a page that has any."""
    if drawn:
        yield asset("page.zoom.html")


def _sentence(note: str) -> str:
    """A note as a sentence begins; a sacreBLEU signature stays as it is."""
    return note if SIGNATURE.match(note) else note[:1].upper() + note[1:]


def _figure(axis: str, drawing: Drawing) -> Iterator[str]:
    chart = drawing.chart
    label = f"{chart.title}: {chart.y_label} over the {axis}s. {chart.note}"
    yield f'<figure class="chart" id="chart-{escape(chart.id)}">'
    yield f"<h3>{escape(chart.title)}</h3>"
    if chart.note:
        signed = ' class="signature"' if SIGNATURE.match(chart.note) else ""
        yield f"<figcaption{signed}>{prose(_sentence(chart.note))}</figcaption>"
    # The name of a single line, or a unit, that only repeats the title is left out.
    repeats = len(chart.traces) == 1 and chart.traces[0].name.lower() in chart.title.lower()
    yield f'<div class="legend" role="group" aria-label="Lines shown"{" hidden" if repeats else ""}></div>'
    if chart.y_label.lower() != chart.title.lower():
        yield f'<p class="unit">{escape(chart.y_label)}</p>'
    # Busy is a chart that is yet to be drawn, or to be drawn anew, once it comes into sight.
    yield f'<div class="plot" tabindex="0" role="group" aria-busy="true" aria-label="{escape(label)}"></div>'
    if drawing.thinned_from:
        points = max(len(curve) for curve in drawing.curves)
        yield (
            f'<p class="thinned">Up to {points:,} of {drawing.thinned_from:,} points of a line are drawn: '
            "the smallest and the largest of every stretch.</p>"
        )
    yield "</figure>"
