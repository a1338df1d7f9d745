"""Stages: a line each without a terminal, bars that go away on one."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from tandem.monitor.stages import shown_stages


@pytest.fixture(autouse=True)
def a_usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def work(console: Console) -> None:
    with shown_stages(console) as show:
        show("read train", 0, None)
        show("read train", 500, 1000)
        show("read train", 1000, 1000)
        show("learn vocabulary", 0, None)
        show("learn vocabulary", 8000, 8000)


def test_a_line_a_stage_where_there_is_no_terminal() -> None:
    output = StringIO()
    work(Console(file=output, force_terminal=False))
    assert output.getvalue() == "read train ...\nlearn vocabulary ...\n"


def test_nothing_to_show_is_nothing_shown() -> None:
    output = StringIO()
    with shown_stages(Console(file=output, force_terminal=False)):
        pass
    assert output.getvalue() == ""


def test_bars_on_a_terminal_that_are_gone_in_the_end() -> None:
    output = StringIO()
    work(Console(file=output, force_terminal=True, width=100))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    assert re.search(r"read train +━+ 1000/1000", plain)
    assert re.search(r"learn vocabulary +━+ 8000/8000", plain)
    assert "..." not in plain
    assert output.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("terminal", [False, True])
def test_an_error_passes_through_and_leaves_the_terminal_usable(terminal: bool) -> None:
    output = StringIO()

    def fail() -> None:
        with shown_stages(Console(file=output, force_terminal=terminal)) as show:
            show("read train", 0, 10)
            raise ValueError("bad line")

    with pytest.raises(ValueError, match="bad line"):
        fail()
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h") == int(terminal)
