"""A comparison on the disk: a page, Markdown and JSON, side by side."""

from __future__ import annotations

from pathlib import Path

from tandem.comparing.comparison import Comparison
from tandem.comparing.render.comparison_markdown import render_comparison_markdown
from tandem.comparing.render.comparison_page import render_comparison_page
from tandem.layout import COMPARISON_DATA, COMPARISON_MARKDOWN, COMPARISON_PAGE
from tandem.reporting.write_report import write_renderings


def write_comparison(comparison: Comparison, directory: str | Path) -> Path:
    """Write all three, each whole or not at all; returns the page."""
    page, markdown = render_comparison_page(comparison), render_comparison_markdown(comparison)
    contents = {COMPARISON_PAGE: page, COMPARISON_MARKDOWN: markdown}
    write_renderings("comparison", directory, contents, COMPARISON_DATA, comparison.as_dict())
    return Path(directory) / COMPARISON_PAGE
