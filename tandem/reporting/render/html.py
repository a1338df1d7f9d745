"""A report as one page that works offline: summary, charts to hover and zoom, and the eleven answers."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import starmap

from tandem.reporting.answers import Answer, Report
from tandem.reporting.questions.question_texts import question_texts
from tandem.reporting.render.evaluation_rows import cells, columns
from tandem.reporting.render.page import (
    Page,
    chart_link,
    chart_links,
    chart_section,
    figures,
    prose,
    render_page,
    zoom_buttons,
)
from tandem.reporting.render.plotly_charts import Drawing, drawings, span
from tandem.reporting.render.thumbnail import thumbnail
from tandem.reporting.render.wording import CONFIDENCE, made_by, run_name, short_name, state, tone, tone_of, verdict
from tandem.units import row

FIRST_CHARTS = ("loss", "bleu", "step_time", "parts")
"""The charts above the answers: what was learnt, how long a step took, and where the time went."""
PROOFS = 2
"""Most charts beside an answer; others are links."""


def render_html(report: Report) -> str:
    """The whole page as one text; nothing in it is fetched from anywhere."""
    drawn = drawings(report.charts)
    return render_page(
        Page(
            kind="Tandem report",
            name=run_name(report),
            state=state(report),
            tone=tone(report.state),
            facts=report.source,
            path=report.path,
            skip=("questions", "Skip to the answers"),
            summary=report.summary,
            remarks=("Problems", report.problems),
            contents=_contents(report, drawn),
            body=_body(report, drawn),
            foot=f"{made_by(report.version, report.made)} Works offline: everything is in this file.",
            axis=report.axis,
            drawn=drawn,
        )
    )


def _contents(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    first, others = _split(drawn)
    yield from chart_links("Charts", first)
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
    yield from chart_links("More charts", others)


def _split(drawn: list[Drawing]) -> tuple[list[Drawing], list[Drawing]]:
    """The charts above the answers, in the order of FIRST_CHARTS, and those below."""
    by_id = {drawing.chart.id: drawing for drawing in drawn}
    first = [by_id[id] for id in FIRST_CHARTS if id in by_id]
    return first, [drawing for drawing in drawn if drawing.chart.id not in FIRST_CHARTS]


def _body(report: Report, drawn: list[Drawing]) -> Iterator[str]:
    first, others = _split(drawn)
    yield from chart_section(report.axis, first)
    if report.evaluations:
        yield from _evaluations(report)
    yield '<section id="questions"><h2>Eleven questions</h2>'
    for number, answer in enumerate(report.questions, 1):
        yield from _card(number, answer, drawn, report.axis)
    yield "</section>"
    if others:
        yield '<section id="more-charts"><h2>More charts</h2>'
        yield from figures(report.axis, others)
        yield "</section>"
    yield from zoom_buttons(drawn)


def _evaluations(report: Report) -> Iterator[str]:
    heads = columns(report)
    yield '<section id="evaluations"><h2>Evaluations</h2>'
    if report.bleu_note:
        yield f'<p class="note">BLEU: {prose(report.bleu_note)}</p>'
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
    yield f'<div class="text"><p class="answer">{prose(answer.answer)}</p>'
    if answer.explanation:
        yield f'<p class="explanation">{prose(answer.explanation)}</p>'
    yield "</div>"
    if proofs:
        yield from _proofs(proofs[:PROOFS], drawn, axis)
    if answer.evidence:
        yield f"<details><summary>Evidence<span>{len(answer.evidence)}</span></summary><dl>"
        for label, lines in starmap(row, answer.evidence.items()):
            yield f"<div><dt>{escape(label)}</dt><dd>{'<br>'.join(map(escape, lines))}</dd></div>"
        yield "</dl></details>"
    if links := [chart_link(drawing) for drawing in proofs[PROOFS:]]:
        yield f'<p class="links">{" ".join(links)}</p>'
    yield "</article>"


def _proofs(proofs: list[Drawing], drawn: list[Drawing], axis: str) -> Iterator[str]:
    """The charts that show what an answer says, small; each leads to the large one."""
    yield '<div class="proofs">'
    for drawing in proofs:
        yield f'<a class="proof" href="#chart-{escape(drawing.chart.id)}"><span>{escape(drawing.chart.title)}</span>'
        yield f"{thumbnail(drawing, span(drawn), axis)}</a>"
    yield "</div>"
