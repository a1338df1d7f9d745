"""The lines for the terminal."""

from __future__ import annotations

import pytest

from tandem.reporting.render.terminal import NARROWEST, render_text
from tests.reporting.render.sample import sample_report


def test_summary_then_problems_then_eleven_answers() -> None:
    lines = render_text(sample_report()).splitlines()
    assert lines[0] == "wmt16-base-2hosts: Tandem run, finished"
    assert lines[1].startswith("  Base Transformer")
    assert lines.index("Problems") < lines.index(" 1  Duration: measured (high confidence)")
    assert " 5  Network: bottleneck (high confidence)" in lines
    assert "11  Step time and network: unknown" in lines


@pytest.mark.parametrize("width", [20, 60, 80, 300])
def test_lines_fit_the_terminal(width: int) -> None:
    lines = render_text(sample_report(), width).splitlines()
    assert max(map(len, lines)) <= max(NARROWEST, min(width, 100)) + len("journal/rank-1.jsonl:") * (width == 20)
