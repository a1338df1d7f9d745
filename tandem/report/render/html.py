"""A report as one page that works offline: summary, the eleven answers, and charts to hover and zoom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from tandem.report.answers import Answer, Report
from tandem.report.figures import row
from tandem.report.render.charts import Drawing, drawings, embedded
from tandem.report.render.words import CONFIDENCE, moment, run_name, short_name, state, tone, tone_of, verdict

CHARTS_OF_QUESTIONS = {
    "duration": ("parts",),
    "trained": ("loss", "bleu"),
    "overfitting": ("loss", "bleu"),
    "utilisation": ("parts", "gpus", "cpu"),
    "network": ("parts", "network"),
    "learning_rate": ("learning_rate",),
    "step_time": ("parts", "step_time"),
    "network_correlation": ("step_time", "network"),
}
"""Where to look for the answer's evidence, by the charts' ids; a chart that a report lacks gets no link."""
HINT = (
    '<p class="hint fine">Drag across a chart to zoom all of them; double-click to see everything again. With the '
    "keyboard: <kbd>+</kbd> <kbd>-</kbd> <kbd>&larr;</kbd> <kbd>&rarr;</kbd> <kbd>0</kbd>.</p>"
    '<p class="hint coarse">Tap a line to read its values; the buttons below zoom all charts.</p>'
)
ZOOM_BUTTONS = (
    ("ArrowLeft", "&larr;", "Earlier"),
    ("-", "&minus;", "Zoom out"),
    ("+", "+", "Zoom in"),
    ("ArrowRight", "&rarr;", "Later"),
    ("0", "All", "Show everything"),
)
"""Key of the same effect, sign and name of each."""
CODE = re.compile("`([^`]+)`")
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:h|min|s|ms|%|[kMG]?B|[MG]bit)(?![a-z]))")
"""A line must not end between a number and its unit."""


def render_html(report: Report) -> str:
    """The whole page as one text; nothing in it is fetched from anywhere."""
    drawn = drawings(report)
    page = Template(_asset("page.html"))
    return page.substitute(
        title=escape(f"{run_name(report)}: Tandem report"),
        style=_asset("page.css"),
        head="\n".join(_head(report)),
        contents="\n".join(_contents(report, drawn)),
        body="\n".join(_body(report, drawn)),
        foot=escape(f"Made by Tandem {report.version}, {moment(report)}. Works offline: everything is in this file."),
        data=embedded(report, drawn),
        # No script of today's plotly ends an element; one that did would break the page.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        script=_asset("page.js"),
    )


def _asset(name: str) -> str:
    return files("tandem.report.render").joinpath(name).read_text(encoding="utf-8")


def _prose(text: str) -> str:
    """A sentence: safe, commands in backticks as code, numbers together with their units."""
    return CODE.sub(r"<code>\1</code>", BEFORE_UNIT.sub("&nbsp;", escape(text)))


def _head(report: Report) -> Iterator[str]:
    yield '<p class="eyebrow">Tandem report</p>'
    yield f"<h1>{escape(run_name(report))}</h1>"
    yield (
        f'<p class="facts"><span class="pill {tone(report.state)}">{escape(state(report))}</span>'
        f'<span>{escape(report.source)}</span><span class="path">{escape(report.path)}</span></p>'
    )
    yield '<section class="summary" aria-label="Summary">'
    yield from (f"<p>{_prose(line)}</p>" for line in report.summary)
    yield "</section>"
    if report.problems:
        yield '<section class="problems"><h2>Problems</h2><ul>'
        yield from (f"<li>{_prose(problem)}</li>" for problem in report.problems)
        yield "</ul></section>"


def _contents(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    yield '<h2>Answers</h2><ol class="verdicts">'
    for answer in report.questions:
        yield (
            f'<li><a href="#q-{escape(answer.id)}"><span class="dot {tone_of(answer)}"></span>'
            f'<span class="name">{escape(short_name(answer))}</span>'
            f'<span class="word">{escape(verdict(answer))}</span></a></li>'
        )
    yield "</ol>"
    if drawn:
        yield "<h2>Charts</h2><ul>"
        for drawing in drawn:
            yield f'<li><a href="#chart-{escape(drawing.chart.id)}">{escape(drawing.chart.title)}</a></li>'
        yield "</ul>"


def _body(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    yield '<section id="questions"><h2>Eleven questions</h2>'
    for number, answer in enumerate(report.questions, 1):
        yield from _card(number, answer, drawn)
    yield "</section>"
    if drawn:
        yield '<section id="charts"><h2>Charts</h2>'
        yield HINT
        for drawing in drawn:
            yield from _figure(report, drawing)
        yield '<div class="zoom" role="group" aria-label="Zoom of all charts" hidden><span></span>'
        for key, sign, name in ZOOM_BUTTONS:
            yield f'<button type="button" data-key="{key}" aria-label="{name}" title="{name}">{sign}</button>'
        yield "</div>"
        yield "</section>"


def _card(number: int, answer: Answer, drawn: list[Drawing]) -> Iterator[str]:
    yield f'<article class="card" id="q-{escape(answer.id)}">'
    yield f'<header><span class="number">{number}</span><h3>{escape(answer.question)}</h3></header>'
    yield (
        f'<p class="verdict"><span class="pill {tone_of(answer)}">{escape(verdict(answer))}</span>'
        f'<span class="confidence">{CONFIDENCE[answer.confidence]}</span></p>'
    )
    yield f'<p class="answer">{_prose(answer.answer)}</p>'
    if answer.explanation:
        yield f'<p class="explanation">{_prose(answer.explanation)}</p>'
    if answer.evidence:
        yield f"<details><summary>Evidence<span>{len(answer.evidence)}</span></summary><dl>"
        yield from _evidence(answer)
        yield "</dl></details>"
    wanted = CHARTS_OF_QUESTIONS.get(answer.id, ())
    links = [
        f'<a href="#chart-{escape(drawing.chart.id)}">{escape(drawing.chart.title)}</a>'
        for drawing in drawn
        if drawing.chart.id in wanted
    ]
    if links:
        yield f'<p class="links">{" ".join(links)}</p>'
    yield "</article>"


def _evidence(answer: Answer) -> Iterator[str]:
    for name, value in answer.evidence.items():
        label, lines = row(name, value)
        yield f"<div><dt>{escape(label)}</dt><dd>{'<br>'.join(map(escape, lines))}</dd></div>"


def _figure(report: Report, drawing: Drawing) -> Iterator[str]:
    chart = drawing.chart
    label = f"{chart.title}: {chart.y_label} over the {report.axis}s. {chart.note}"
    yield f'<figure class="chart" id="chart-{escape(chart.id)}">'
    yield f"<h3>{escape(chart.title)}</h3>"
    if chart.note:
        yield f"<figcaption>{_prose(chart.note[:1].upper() + chart.note[1:])}</figcaption>"
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
