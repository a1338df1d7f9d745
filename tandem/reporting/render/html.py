"""A report as one page that works offline: summary, charts to hover and zoom, and the eleven answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from itertools import starmap
from string import Template

from plotly.offline import get_plotlyjs

from tandem.reporting.answers import Answer, Report
from tandem.reporting.questions.question_texts import question_texts
from tandem.reporting.render.evaluation_rows import cells, columns
from tandem.reporting.render.plotly_charts import Drawing, drawings, embedded, span
from tandem.reporting.render.thumbnail import thumbnail
from tandem.reporting.render.wording import CONFIDENCE, moment, run_name, short_name, state, tone, tone_of, verdict
from tandem.units import row

CODE = re.compile("`([^`]+)`")
SIGNATURE = re.compile(r"\w+:\w+(?:\||$)")
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:h|min|s|ms|%|[kMG]?B|[MG]bit)(?![a-z]))")
"""A line must not end between a number and its unit."""


FIRST_CHARTS = ("loss", "bleu", "step_time", "parts")
"""The charts above the answers: what was learnt, how long a step took, and where the time went."""
PROOFS = 2
"""Most charts beside an answer; others are links."""


def render_html(report: Report) -> str:
    """The whole page as one text; nothing in it is fetched from anywhere."""
    drawn = drawings(report)
    problems = "\n".join(f"<li>{_prose(problem)}</li>" for problem in report.problems)
    return Template(_asset("page.html")).substitute(
        style=_asset("page.css"),
        name=escape(run_name(report)),
        tone=tone(report.state),
        state=escape(state(report)),
        source=escape(report.source),
        path=escape(report.path),
        summary="\n".join(f"<p>{_prose(line)}</p>" for line in report.summary),
        problems=f'<section class="problems"><h2>Problems</h2><ul>{problems}</ul></section>' if problems else "",
        contents="\n".join(_contents(report, drawn)),
        body="\n".join(_body(report, drawn)),
        foot=escape(f"Made by Tandem {report.version}, {moment(report)}. Works offline: everything is in this file."),
        data=embedded(report, drawn),
        # No script of today's plotly ends an element; one that did would break the page.
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        script=_asset("page.js"),
    )


def _asset(name: str) -> str:
    return files("tandem.reporting.render").joinpath(name).read_text(encoding="utf-8")


def _prose(text: str) -> str:
    """A sentence: safe, commands in backticks as code, numbers together with their units."""
    return CODE.sub(r"<code>\1</code>", BEFORE_UNIT.sub("&nbsp;", escape(text)))


def _contents(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    first, others = _split(drawn)
    yield from _listed("Charts", first)
    if report.evaluations:
        yield '<p><a href="#evaluations">Table of evaluations</a></p>'
    yield '<h2>Answers</h2><ol class="verdicts">'
    for answer in report.questions:
        yield (
            f'<li><a href="#q-{escape(answer.id)}"><span class="dot {tone_of(answer)}"></span>'
            f'<span class="name">{escape(short_name(answer))}</span>'
            f'<span class="word">{escape(verdict(answer))}</span></a></li>'
        )
    yield "</ol>"
    yield from _listed("More charts", others)


def _listed(title: str, drawn: list[Drawing]) -> Iterator[str]:
    if drawn:
        yield f"<h2>{title}</h2><ul>"
        yield from (f"<li>{_link(drawing)}</li>" for drawing in drawn)
        yield "</ul>"


def _split(drawn: list[Drawing]) -> tuple[list[Drawing], list[Drawing]]:
    """The charts above the answers, in the order of FIRST_CHARTS, and those below."""
    by_id = {drawing.chart.id: drawing for drawing in drawn}
    first = [by_id[id] for id in FIRST_CHARTS if id in by_id]
    return first, [drawing for drawing in drawn if drawing.chart.id not in FIRST_CHARTS]


def _link(drawing: Drawing) -> str:
    return f'<a href="#chart-{escape(drawing.chart.id)}">{escape(drawing.chart.title)}</a>'


def _body(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    first, others = _split(drawn)
    if first:
        yield Template(_asset("page.charts.html")).substitute(figures="\n".join(_figures(report, first)))
    if report.evaluations:
        yield from _evaluations(report)
    yield '<section id="questions"><h2>Eleven questions</h2>'
    for number, answer in enumerate(report.questions, 1):
        yield from _card(number, answer, drawn, report.axis)
    yield "</section>"
    if others:
        yield '<section id="more-charts"><h2>More charts</h2>'
        yield from _figures(report, others)
        yield "</section>"
    if drawn:
        yield _asset("page.zoom.html")


def _figures(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    yield '<div class="figures">'
    for drawing in drawn:
        yield from _figure(report, drawing)
    yield "</div>"


def _evaluations(report: Report) -> Iterator[str]:
    heads = columns(report)
    yield '<section id="evaluations"><h2>Evaluations</h2>'
    if report.bleu_note:
        yield f'<p class="note">BLEU: {_prose(report.bleu_note)}</p>'
    yield '<div class="table" tabindex="0" role="region" aria-label="Table of evaluations"><table><thead><tr>'
    yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for evaluation in report.evaluations:
        first, *others = cells(evaluation, heads)
        best = ' class="best"' if evaluation.best else ""
        values = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        yield f'<tr{best}><th scope="row">{escape(first)}</th>{values}</tr>'
    yield "</tbody></table></div></section>"


def _card(number: int, answer: Answer, drawn: list[Drawing], axis: str) -> Iterator[str]:
    yield f'<article class="card" id="q-{escape(answer.id)}">'
    yield f'<header><span class="number">{number}</span><h3>{escape(answer.question)}</h3></header>'
    yield (
        f'<p class="verdict"><span class="pill {tone_of(answer)}">{escape(verdict(answer))}</span>'
        f'<span class="confidence">{CONFIDENCE[answer.confidence]}</span></p>'
    )
    wanted = question_texts()[answer.id].charts
    proofs = [drawing for id in wanted for drawing in drawn if drawing.chart.id == id]
    yield f'<div class="text"><p class="answer">{_prose(answer.answer)}</p>'
    if answer.explanation:
        yield f'<p class="explanation">{_prose(answer.explanation)}</p>'
    yield "</div>"
    if proofs:
        yield from _proofs(proofs[:PROOFS], drawn, axis)
    if answer.evidence:
        yield f"<details><summary>Evidence<span>{len(answer.evidence)}</span></summary><dl>"
        for label, lines in starmap(row, answer.evidence.items()):
            yield f"<div><dt>{escape(label)}</dt><dd>{'<br>'.join(map(escape, lines))}</dd></div>"
        yield "</dl></details>"
    if links := [_link(drawing) for drawing in proofs[PROOFS:]]:
        yield f'<p class="links">{" ".join(links)}</p>'
    yield "</article>"


def _proofs(proofs: list[Drawing], drawn: list[Drawing], axis: str) -> Iterator[str]:
    """The charts that show what an answer says, small; each leads to the large one."""
    yield '<div class="proofs">'
    for drawing in proofs:
        yield f'<a class="proof" href="#chart-{escape(drawing.chart.id)}"><span>{escape(drawing.chart.title)}</span>'
        yield f"{thumbnail(drawing, span(drawn), axis)}</a>"
    yield "</div>"


def _sentence(note: str) -> str:
    """A note as a sentence begins; a sacreBLEU signature stays as it is."""
    return note if SIGNATURE.match(note) else note[:1].upper() + note[1:]


def _figure(report: Report, drawing: Drawing) -> Iterator[str]:
    chart = drawing.chart
    label = f"{chart.title}: {chart.y_label} over the {report.axis}s. {chart.note}"
    yield f'<figure class="chart" id="chart-{escape(chart.id)}">'
    yield f"<h3>{escape(chart.title)}</h3>"
    if chart.note:
        signed = ' class="signature"' if SIGNATURE.match(chart.note) else ""
        yield f"<figcaption{signed}>{_prose(_sentence(chart.note))}</figcaption>"
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
