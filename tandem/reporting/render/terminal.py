"""A report as lines for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from tandem.reporting.answers import Report
from tandem.reporting.render.wording import CONFIDENCE, run_name, short_name, state, verdict

WIDEST = 100
"""Longer lines are hard to read, however wide the terminal is."""
NARROWEST = 40
"""Below this the lines are left to the terminal."""
INDENT = " " * 4


def render_text(report: Report, width: int = WIDEST) -> str:
    """Summary, problems, and two or three lines for each question; `width` is the terminal's."""
    return wrapped(_parts(report), width)


def wrapped(parts: Iterable[tuple[str, str]], width: int) -> str:
    """Paragraphs, each with its indent, in lines that fit a terminal of this width."""
    columns = max(NARROWEST, min(width, WIDEST))
    return "\n".join(line for part in parts for line in _wrapped(part, columns)) + "\n"


def _parts(report: Report) -> Iterator[tuple[str, str]]:
    """Paragraphs with their indents."""
    yield "", f"{run_name(report)}: {report.source}, {state(report)}"
    yield from (("  ", line) for line in report.summary)
    yield "", ""
    if report.problems:
        yield "", "Problems"
        yield from (("  ", problem) for problem in report.problems)
        yield "", ""
    for number, answer in enumerate(report.questions, 1):
        # A verdict such as `unknown` says already what no confidence would.
        certainty = "" if answer.confidence == "none" else f" ({CONFIDENCE[answer.confidence]})"
        yield "", f"{number:2}  {short_name(answer)}: {verdict(answer)}{certainty}"
        yield INDENT, answer.answer


def _wrapped(part: tuple[str, str], columns: int) -> list[str]:
    indent, text = part
    lines = textwrap.wrap(
        text, columns, initial_indent=indent, subsequent_indent=indent or INDENT, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return lines or [""]
