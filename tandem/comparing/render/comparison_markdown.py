"""A comparison as Markdown that reads well on GitHub."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.comparing.comparison import Comparison, Contrast, SentenceDifference
from tandem.comparing.render.tables import (
    Table,
    all_signatures,
    p_values_table,
    scores_table,
    seeds_table,
    settings_table,
    systems_table,
    text_words,
    title,
)
from tandem.comparing.sentence_differences import Words, marked_words
from tandem.reporting.render.markdown import markdown_text
from tandem.reporting.render.wording import made_by


def render_comparison_markdown(comparison: Comparison) -> str:
    """The comparison without its charts."""
    return "\n\n".join(_blocks(comparison)) + "\n"


def _blocks(comparison: Comparison) -> Iterator[str]:
    yield f"# {markdown_text(title(comparison))}"
    yield markdown_text(text_words(comparison))
    for contrast in comparison.contrasts:
        yield f"**{markdown_text(contrast.headline)}**"
        yield "\n".join(f"- {markdown_text(words)}" for words in contrast.words)
        yield _table(p_values_table(contrast))
    if comparison.remarks:
        yield "## To keep in mind"
        yield "\n".join(f"- {markdown_text(remark)}" for remark in comparison.remarks)
    sections = {
        "Scores": scores_table(comparison),
        "Over seeds: mean ± standard deviation": seeds_table(comparison),
        "What was compared": systems_table(comparison),
        "What differs": settings_table(comparison),
    }
    for name, table in sections.items():
        if table is not None:
            yield f"## {name}"
            yield _table(table)
    yield "## Signatures"
    signatures = all_signatures(comparison).items()
    yield "\n".join(f"- {markdown_text(what)}: `{signature}`" for what, signature in signatures)
    for contrast in comparison.contrasts:
        yield from _sentences(contrast)
    yield markdown_text(made_by(comparison.version, comparison.made))


def _table(table: Table) -> str:
    rule = "|---|" + ("--:|" if table.numbers else "---|") * (len(table.header) - 1)
    rows = ["| " + " | ".join(map(markdown_text, row)) + " |" for row in (table.header, *table.rows)]
    return "\n".join([rows[0], rule, *rows[1:]])


def _sentences(contrast: Contrast) -> Iterator[str]:
    for direction, sentences in (("better", contrast.gained), ("worse", contrast.lost)):
        if sentences:
            names = f"{contrast.second.name} is {direction} than {contrast.first.name}"
            yield f"## Sentences where {markdown_text(names)}, by chrF"
            yield from (_sentence(contrast, sentence) for sentence in sentences)


def _sentence(contrast: Contrast, sentence: SentenceDifference) -> str:
    first, second = marked_words(sentence.first, sentence.second)
    rows = (
        ("source", markdown_text(sentence.source)),
        ("reference", markdown_text(sentence.reference)),
        (f"{contrast.first.members[0]}, chrF {sentence.first_chrf:.1f}", _marked(first)),
        (f"{contrast.second.members[0]}, chrF {sentence.second_chrf:.1f}", _marked(second)),
    )
    lines = [f"| {markdown_text(label)} | {text} |" for label, text in rows]
    return "\n".join([f"| line {sentence.number:,} | |", "|---|---|", *lines])


def _marked(words: list[Words]) -> str:
    return " ".join(f"**{markdown_text(each.text)}**" if each.differs else markdown_text(each.text) for each in words)
