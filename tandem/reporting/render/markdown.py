"""A report as Markdown that reads well on GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import starmap

from tandem.reporting.answers import Report
from tandem.reporting.render.evaluation_rows import cells, columns
from tandem.reporting.render.wording import CONFIDENCE, made_by, run_name, short_name, state, verdict
from tandem.units import row

SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|(?<!\w)_|_(?!\w)|^[#+-]|(?<=^\d)\.(?=\s)")
"""What would be markup: emphasis, links, tags, cells, formulas, and headings or lists where a line begins. An
underscore inside a word is none."""

CODE = re.compile("(`[^`]+`)")
"""Commands and the like, which Markdown shows as they are."""


def render_markdown(report: Report) -> str:
    """The report without its charts."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {markdown_text(run_name(report))}"
    yield f"{markdown_text(report.source)}, {markdown_text(state(report))}: {markdown_text(report.path)}"
    yield "\n".join(f"- {markdown_text(line)}" for line in report.summary)
    if report.problems:
        yield "## Problems"
        yield "\n".join(f"- {markdown_text(problem)}" for problem in report.problems)
    rows = [
        f"| {number} | {markdown_text(short_name(answer))} | {markdown_text(verdict(answer))} | "
        f"{'' if answer.confidence == 'none' else answer.confidence} |"
        for number, answer in enumerate(report.questions, 1)
    ]
    yield "\n".join(["| | question | verdict | confidence |", "|--:|---|---|---|", *rows])
    if report.evaluations:
        yield "## Evaluations"
        heads = columns(report)
        table = [heads, *(cells(evaluation, heads) for evaluation in report.evaluations)]
        first, *others = (f"| {' | '.join(map(markdown_text, line))} |" for line in table)
        yield "\n".join([first, "|" + "--:|" * len(heads), *others])
        if report.bleu_note:
            yield f"BLEU: {markdown_text(report.bleu_note)}"
    for number, answer in enumerate(report.questions, 1):
        yield f"## {number}. {markdown_text(answer.question)}"
        yield f"**{markdown_text(verdict(answer))}** ({CONFIDENCE[answer.confidence]})"
        yield markdown_text(answer.answer)
        if answer.explanation:
            yield f"*{markdown_text(answer.explanation)}*"
        if answer.evidence:
            yield "<details><summary>Evidence</summary>"
            facts = starmap(row, answer.evidence.items())
            rows = [f"| {markdown_text(label)} | {'<br>'.join(map(markdown_text, lines))} |" for label, lines in facts]
            yield "\n".join(["| | |", "|---|---|", *rows])
            yield "</details>"
    yield markdown_text(made_by(report.version, report.made))


def markdown_text(words: str) -> str:
    """Words as they are, on one line; nothing in them but code in backticks is markup."""
    pieces = CODE.split(" ".join(words.split()))
    pieces[::2] = [SPECIAL.sub(lambda found: f"\\{found.group()}", piece) for piece in pieces[::2]]
    # Even inside code a bar would end the cell of a table.
    pieces[1::2] = [piece.replace("|", "\\|") for piece in pieces[1::2]]
    return "".join(pieces)
