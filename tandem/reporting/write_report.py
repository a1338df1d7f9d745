"""A report on the disk: a page, Markdown and JSON, side by side."""

from __future__ import annotations

import json
from pathlib import Path

from tandem.errors import TandemError
from tandem.layout import REPORT_DATA, REPORT_MARKDOWN, REPORT_PAGE
from tandem.reporting.answers import Report
from tandem.reporting.render.html import render_html
from tandem.reporting.render.markdown import render_markdown
from tandem.storage import write_whole


def write_report(report: Report, directory: str | Path) -> Path:
    """Write all three, each whole or not at all; returns the page."""
    directory = Path(directory)
    contents = {
        REPORT_PAGE: render_html(report),
        REPORT_MARKDOWN: render_markdown(report),
        REPORT_DATA: json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n",
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            # A path that is not UTF-8 arrives as lone surrogates, which no file can hold.
            write_whole(directory / name, content.encode("utf-8", errors="replace"))
    except OSError as error:
        raise TandemError(f"{directory}: cannot hold the report ({error.strerror}); name another with --out") from error
    return directory / REPORT_PAGE
