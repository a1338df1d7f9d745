"""A report as Markdown that reads well on GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tandem.report.answers import Answer, Report
from tandem.report.figures import row
from tandem.report.render.words import CONFIDENCE, moment, run_name, short_name, state, verdict

SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|(?<!\w)_|_(?!\w)|^[#+-]|(?<=^\d)\.(?=\s)")
"""What would be markup: emphasis, links, tags, cells, formulas, and headings or lists where a line begins. An
underscore inside a word is none."""

CODE = re.compile("(`[^`]+`)")
"""Commands and the like, which Markdown shows as they are."""


def render_markdown(report: Report) -> str:
    """Everything but the charts."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_text(run_name(report))}"
    yield ""
    yield f"{_text(report.source)}, {_text(state(report))}: {_text(report.path)}"
    yield ""
    yield from (f"- {_text(line)}" for line in report.summary)
    yield ""
    if report.problems:
        yield "## Problems"
        yield ""
        yield from (f"- {_text(problem)}" for problem in report.problems)
        yield ""
    yield "| | question | verdict | confidence |"
    yield "|--:|---|---|---|"
    for number, answer in enumerate(report.questions, 1):
        confidence = "" if answer.confidence == "none" else answer.confidence
        yield f"| {number} | {_text(short_name(answer))} | {_text(verdict(answer))} | {confidence} |"
    yield ""
    for number, answer in enumerate(report.questions, 1):
        yield from _question(number, answer)
    yield f"Made by Tandem {_text(report.version)}, {_text(moment(report))}."


def _question(number: int, answer: Answer) -> Iterator[str]:
    yield f"## {number}. {_text(answer.question)}"
    yield ""
    yield f"**{_text(verdict(answer))}** ({CONFIDENCE[answer.confidence]})"
    yield ""
    yield _text(answer.answer)
    yield ""
    if answer.explanation:
        yield f"*{_text(answer.explanation)}*"
        yield ""
    if answer.evidence:
        yield "<details><summary>Evidence</summary>"
        yield ""
        yield "| | |"
        yield "|---|---|"
        for name, value in answer.evidence.items():
            label, lines = row(name, value)
            yield f"| {_text(label)} | {'<br>'.join(map(_text, lines))} |"
        yield ""
        yield "</details>"
        yield ""


def _text(words: str) -> str:
    """Words as they are, on one line; nothing in them but code in backticks is markup."""
    pieces = CODE.split(" ".join(words.split()))
    pieces[::2] = [SPECIAL.sub(lambda found: f"\\{found.group()}", piece) for piece in pieces[::2]]
    # Even inside code a bar would end the cell of a table.
    pieces[1::2] = [piece.replace("|", "\\|") for piece in pieces[1::2]]
    return "".join(pieces)
