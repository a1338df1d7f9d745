"""A report on the disk: a page, Markdown and JSON, side by side."""

from __future__ import annotations

import json
from pathlib import Path

from tandem.errors import TandemError
from tandem.files import write_whole
from tandem.report.answers import Report
from tandem.report.render.html import render_html
from tandem.report.render.markdown import render_markdown

PAGE, MARKDOWN, DATA = "report.html", "report.md", "report.json"


def write_report(report: Report, directory: Path) -> Path:
    """Write all three, each whole or not at all; returns the page."""
    contents = {
        PAGE: render_html(report),
        MARKDOWN: render_markdown(report),
        DATA: json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n",
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            # A path that is not UTF-8 arrives as lone surrogates, which no file can hold.
            write_whole(directory / name, content.encode("utf-8", errors="replace"))
    except OSError as error:
        raise TandemError(f"{directory}: cannot hold the report ({error.strerror}); name another with --out") from error
    return directory / PAGE
