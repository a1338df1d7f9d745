"""A self-test for people: a table on the terminal, and a page of Markdown to send in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tandem.doctor.figures import time
from tandem.doctor.self_test.result import FAILED, NOT_APPLICABLE, PASSED, CheckResult, Outcome, SelfTest
from tandem.files import write_whole
from tandem.report.figures import row

PAGE_NAME = "gpu-check.md"
STYLES = {PASSED: "green", FAILED: "bold red", NOT_APPLICABLE: "dim"}


def show_self_test(found: SelfTest, page: Path, console: Console) -> None:
    """Print the table, and where the page is."""
    table = Table("check", "result", "found", "time", show_lines=False)
    for check in found.checks:
        style = STYLES[check.status]
        result = Text(check.status, style=style)
        table.add_row(Text(check.name), result, Text(check.found), time(check.seconds))
    console.print(table, highlight=False)
    console.print(Text(found.summary, style="bold"), highlight=False)
    console.print(Text(f"wrote {page}, which names no host, user or directory: send it in"), highlight=False)


def write_page(found: SelfTest, page: Path) -> None:
    """Write the page, over one of an earlier test."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, "\n".join([*_lines(found), ""]).encode())


def _lines(found: SelfTest) -> Iterator[str]:
    yield "# GPU check"
    yield ""
    cards = f"{found.processes} process{'es' if found.processes > 1 else ''}, one for each card"
    yield f"{found.versions}; {cards}; sizes of `{found.preset}`. {found.summary[0].upper()}{found.summary[1:]}."
    yield ""
    yield "| check | expected | result | found | time |"
    yield "|---|---|---|---|---|"
    for check in found.checks:
        cells = (check.name, check.expected, check.status, check.found, time(check.seconds))
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""
    yield "## Figures"
    for check in found.checks:
        yield from _figures(check)


def _figures(check: CheckResult) -> Iterator[str]:
    """What the first process has measured in a check, and what the others found that is not the same."""
    first = check.by_rank[0]
    others = [f"rank {rank}: {each.found}" for rank, each in enumerate(check.by_rank) if each.found != first.found]
    if not first.figures and not others:
        return
    yield ""
    yield f"### {check.name[0].upper()}{check.name[1:]}"
    yield ""
    yield from _items(first)
    yield from (f"- {_cell(text)}" for text in others)


def _items(outcome: Outcome) -> Iterator[str]:
    for name, value in outcome.figures.items():
        label, texts = row(name, _plain(value))
        yield f"- {label}: {'; '.join(texts)}"


def _plain(value: Any) -> Any:
    """Lists of words inside a mapping as one text each."""
    if not isinstance(value, dict):
        return value
    return {name: ", ".join(entry) or "none" if isinstance(entry, list) else entry for name, entry in value.items()}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
