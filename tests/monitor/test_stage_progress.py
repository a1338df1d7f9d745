"""Stages: a few lines each without a terminal, bars that go away on one."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from tandem.corpus.progress import ProgressCallback
from tandem.monitor.stage_progress import progress_bars


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def work(console: Console) -> None:
    with progress_bars(console) as show:
        show("read train", 0, None)
        show("read train", 500, 1000)
        show("read train", 1000, 1000)
        show("learn vocabulary", 0, None)
        show("learn vocabulary", 8000, 8000)


def plain(output: StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())


def test_a_line_a_stage_where_there_is_no_terminal() -> None:
    output = StringIO()
    work(Console(file=output, force_terminal=False))
    assert output.getvalue() == "read train ...\nlearn vocabulary ...\n"


def test_nothing_to_show_is_nothing_shown() -> None:
    output = StringIO()
    with progress_bars(Console(file=output, force_terminal=False)):
        pass
    assert output.getvalue() == ""


def test_bars_on_a_terminal_that_are_gone_in_the_end() -> None:
    output = StringIO()
    work(Console(file=output, force_terminal=True, width=100))
    assert re.search(r"read train +━+ 1,000 +in 0:00:00", plain(output))
    assert re.search(r"learn vocabulary +━+ 8,000 +in 0:00:00", plain(output))
    assert "..." not in plain(output)
    assert output.getvalue().endswith("\x1b[2K")


def download(show: ProgressCallback, clock: Clock, seconds: int) -> None:
    """50 MB were there already; from then on two files come at 2 MB a second each, told of every half second."""
    show("read [a] list", 3, 3)
    for half in range(2 * seconds + 1):
        clock.now = half / 2
        show("download training-parallel-commoncrawl.tgz", (50 + half) * 10**6, 1050 * 10**6, "B")
        show("download small.tgz", min(half, 8) * 10**6, 8 * 10**6, "B")


def test_bytes_have_a_rate_and_a_time_on_a_terminal_of_80_columns() -> None:
    output, clock = StringIO(), Clock()
    with progress_bars(Console(file=output, force_terminal=True, width=80), clock) as show:
        download(show, clock, seconds=60)
    last = plain(output).replace("\r", "\n").splitlines()
    slow = r"download…commoncrawl\.tgz [━╸╺]+ 170\.0/1,050\.0 MB 2\.0 MB/s  0:07:20 left *"
    assert any(re.fullmatch(slow, line) for line in last)
    assert any(re.fullmatch(r"download small\.tgz +━+ 8\.0 MB +in 0:00:04 *", line) for line in last)
    assert all(len(line) <= 80 for line in last)


def test_long_stages_are_told_of_now_and_then_without_a_terminal() -> None:
    output, clock = StringIO(), Clock()
    with progress_bars(Console(file=output, force_terminal=False), clock) as show:
        download(show, clock, seconds=500)
    name = "download training-parallel-commoncrawl.tgz"
    assert output.getvalue().splitlines() == [
        "read [a] list ...",
        f"{name} ...",
        "download small.tgz ...",
        f"{name}: 70.0/1,050.0 MB  2.0 MB/s  0:08:10 left",
        f"{name}: 110.0/1,050.0 MB  2.0 MB/s  0:07:50 left",
        f"{name}: 190.0/1,050.0 MB  2.0 MB/s  0:07:10 left",
        f"{name}: 350.0/1,050.0 MB  2.0 MB/s  0:05:50 left",
        f"{name}: 670.0/1,050.0 MB  2.0 MB/s  0:03:10 left",
        f"{name}: 1,050.0 MB in 0:08:20",
    ]


def test_a_stage_of_unknown_length_and_one_that_begins_again() -> None:
    output, clock = StringIO(), Clock()
    with progress_bars(Console(file=output, force_terminal=False), clock) as show:
        for second in range(12):
            clock.now += 1
            show("count", second * 1000, None, "pairs")
        for done in (0, 50, 100, 0, 50):
            clock.now += 10
            show("again", done, 100)
    assert output.getvalue().splitlines() == [
        "count ...",
        "count: 10,000 pairs",
        "again ...",
        "again: 50/100",
        "again: 100 in 0:00:20",
        "again: 0/100",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_an_error_passes_through_and_leaves_the_terminal_usable(terminal: bool) -> None:
    output = StringIO()

    def fail() -> None:
        with progress_bars(Console(file=output, force_terminal=terminal)) as show:
            show("read train", 0, 10)
            raise ValueError("bad line")

    with pytest.raises(ValueError, match="bad line"):
        fail()
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h") == int(terminal)
