"""A report on the disk: a page, Markdown and JSON, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.errors import TandemError
from tandem.layout import REPORT_DATA, REPORT_MARKDOWN, REPORT_PAGE
from tandem.reporting.answers import Report
from tandem.reporting.render.html import render_html
from tandem.reporting.render.markdown import render_markdown
from tandem.storage import write_whole


def write_report(report: Report, directory: str | Path) -> Path:
    """Write all three, each whole or not at all; returns the page."""
    contents = {REPORT_PAGE: render_html(report), REPORT_MARKDOWN: render_markdown(report)}
    write_renderings("report", directory, contents, REPORT_DATA, report.as_dict())
    return Path(directory) / REPORT_PAGE


def write_renderings(
    what: str, directory: str | Path, contents: Mapping[str, str], data_file: str, data: Mapping[str, Any]
) -> None:
    """Write texts by their file names, and the same as JSON."""
    directory = Path(directory)
    as_json = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in {**contents, data_file: as_json}.items():
            # A path that is not UTF-8 arrives as lone surrogates, which no file can hold.
            write_whole(directory / name, content.encode("utf-8", errors="replace"))
    except OSError as error:
        raise TandemError(f"{directory}: cannot hold the {what} ({error.strerror}); name another with --out") from error
