"""A comparison as one page that works offline, in the report's style."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from tandem.comparing.comparison import Comparison, Contrast, SentenceDifference, Verdict
from tandem.comparing.render.interval_chart import interval_charts
from tandem.comparing.render.tables import (
    Table,
    p_values_table,
    score_signatures,
    scores_table,
    seeds_table,
    settings_table,
    systems_table,
    text_words,
    title,
)
from tandem.comparing.run_curves import AXIS
from tandem.comparing.sentence_differences import Words, marked_words
from tandem.comparing.verdict_words import signed
from tandem.reporting.render.page import Page, chart_links, chart_section, prose, render_page, zoom_buttons
from tandem.reporting.render.plotly_charts import Drawing, drawings
from tandem.reporting.render.wording import Tone, made_by

VERDICTS: dict[Verdict, tuple[str, Tone]] = {
    "better": ("better", "good"),
    "worse": ("worse", "attention"),
    "unclear": ("cannot tell", "neutral"),
    "same": ("the same", "neutral"),
}
"""Word and tone of a verdict."""


def render_comparison_page(comparison: Comparison) -> str:
    """The whole page as one text; nothing in it is fetched from anywhere."""
    drawn = drawings(comparison.charts)
    state, tone = VERDICTS[comparison.contrasts[0].verdict]
    if len(comparison.contrasts) > 1:
        state, tone = f"{len(comparison.systems)} systems", "neutral"
    return render_page(
        Page(
            kind="Tandem comparison",
            name=title(comparison),
            state=state,
            tone=tone,
            facts=text_words(comparison),
            path="",
            skip=("differences", "Skip to the differences"),
            summary=[contrast.headline for contrast in comparison.contrasts],
            remarks=("To keep in mind", comparison.remarks),
            contents=_contents(comparison, drawn),
            body=_body(comparison, drawn),
            foot=f"{made_by(comparison.version, comparison.made)} Works offline: everything is in this file.",
            axis=AXIS,
            drawn=drawn,
            style=files("tandem.comparing.render").joinpath("compare.css").read_text(encoding="utf-8"),
        )
    )


def _contents(comparison: Comparison, drawn: list[Drawing]) -> Iterator[str]:
    yield '<h2>Verdicts</h2><ol class="verdicts">'
    for number, contrast in enumerate(comparison.contrasts):
        word, tone = VERDICTS[contrast.verdict]
        yield (
            f'<li><a href="#pair-{number}"><span class="dot {tone}"></span>'
            f'<span class="name">{escape(contrast.second.name)}</span><span class="word">{word}</span></a></li>'
        )
    yield "</ol>"
    yield from chart_links("Charts", drawn)
    yield '<h2>More</h2><ul><li><a href="#scores">Scores</a></li>'
    if comparison.settings:
        yield '<li><a href="#settings">What differs</a></li>'
    if any(contrast.gained or contrast.lost for contrast in comparison.contrasts):
        yield '<li><a href="#sentences">Sentences</a></li>'
    yield "</ul>"


def _body(comparison: Comparison, drawn: list[Drawing]) -> Iterator[str]:
    yield '<section id="differences"><h2>Differences</h2>'
    yield from interval_charts(comparison.contrasts)
    for number, contrast in enumerate(comparison.contrasts):
        yield from _pair(number, contrast)
    yield "</section>"
    yield from chart_section(AXIS, drawn)
    yield from _scores(comparison)
    if settings := settings_table(comparison):
        yield '<section id="settings"><h2>What differs</h2>'
        yield from _table(settings, "Settings and facts that are not the same")
        yield "</section>"
    yield from _all_sentences(comparison)
    yield from zoom_buttons(drawn)


def _pair(number: int, contrast: Contrast) -> Iterator[str]:
    word, tone = VERDICTS[contrast.verdict]
    yield f'<article class="card" id="pair-{number}">'
    yield f"<header><h3>{escape(contrast.second.title)} against {escape(contrast.first.title)}</h3></header>"
    yield f'<p class="verdict"><span class="pill {tone}">{word}</span></p>'
    yield '<ul class="words">'
    yield from (f"<li>{prose(words)}</li>" for words in contrast.words)
    yield "</ul>"
    yield from _table(p_values_table(contrast), "Tests")
    yield "<details><summary>Signatures</summary><dl>"
    yield from _signatures({found.metric: found.signature for found in contrast.differences})
    yield "</dl></details></article>"


def _scores(comparison: Comparison) -> Iterator[str]:
    yield '<section id="scores"><h2>Scores</h2>'
    yield '<div class="card">'
    yield from _table(scores_table(comparison), "Scores, with half the width of 95 % intervals")
    yield '<p class="explanation">± is half the width of what holds 95 % of the scores on resampled sentences.</p>'
    if seeds := seeds_table(comparison):
        yield "<h3>Mean ± standard deviation over seeds</h3>"
        yield from _table(seeds, "Scores over seeds")
    yield "<details><summary>Signatures</summary><dl>"
    yield from _signatures(score_signatures(comparison))
    yield "</dl></details><details><summary>What was compared</summary>"
    yield from _table(systems_table(comparison), "What was compared")
    yield "</details></div></section>"


def _signatures(signatures: dict[str, str]) -> Iterator[str]:
    for metric, signature in signatures.items():
        yield f"<div><dt>{escape(metric)}</dt><dd><code>{escape(signature)}</code></dd></div>"


def _table(table: Table, label: str) -> Iterator[str]:
    """A table that scrolls by itself where the screen is narrower."""
    kind = "numbers" if table.numbers else "texts"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
    yield f'<table class="{kind}"><thead><tr>'
    yield from (f'<th scope="col">{escape(cell)}</th>' if cell else "<td></td>" for cell in table.header)
    yield "</tr></thead><tbody>"
    for first, *cells in table.rows:
        yield f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
    yield "</tbody></table></div>"


def _all_sentences(comparison: Comparison) -> Iterator[str]:
    contrasts = [contrast for contrast in comparison.contrasts if contrast.gained or contrast.lost]
    if not contrasts:
        return
    yield '<section id="sentences"><h2>Where they differ most</h2>'
    yield '<p class="hint">By chrF of the sentence; marked are words that the other has not at that place.</p>'
    for contrast in contrasts:
        for direction, sentences in (("better", contrast.gained), ("worse", contrast.lost)):
            if sentences:
                names = f"{contrast.second.members[0]} is {direction} than {contrast.first.members[0]}"
                yield f"<h3>{escape(names)}</h3>"
            for sentence in sentences:
                yield from _sentence(contrast, sentence)
    yield "</section>"


def _sentence(contrast: Contrast, sentence: SentenceDifference) -> Iterator[str]:
    gain = sentence.second_chrf - sentence.first_chrf
    tone = "good" if gain > 0 else "attention"
    first, second = marked_words(sentence.first, sentence.second)
    rows = (
        ("source", "", escape(sentence.source)),
        ("reference", "", escape(sentence.reference)),
        (contrast.first.members[0], f"{sentence.first_chrf:.1f}", _marked(first)),
        (contrast.second.members[0], f"{sentence.second_chrf:.1f}", _marked(second)),
    )
    yield '<article class="card sentence">'
    yield f"<header><h4>Line {sentence.number:,}</h4></header>"
    yield f'<p class="verdict"><span class="pill {tone}">{signed(gain, 1)} chrF</span></p><dl>'
    for label, score, text in rows:
        yield f"<div><dt>{escape(label)}{f' <span>{score}</span>' if score else ''}</dt><dd>{text}</dd></div>"
    yield "</dl></article>"


def _marked(words: list[Words]) -> str:
    stretches = (f"<mark>{escape(each.text)}</mark>" if each.differs else escape(each.text) for each in words)
    return " ".join(stretches) or "<em>nothing</em>"
