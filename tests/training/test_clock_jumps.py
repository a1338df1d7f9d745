"""A wall clock that is set while a run trains, and between two sessions of it: no time or age becomes negative."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.watch.panels import RunScreen
from tandem.monitor.watch.run_state import RunState
from tandem.reporting.examine_run import report
from testbed.journals import read_journal
from tests.training.processes import train_command

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
SETTINGS = ("schedule.kind=inverse_sqrt", "evaluation.every_steps=100", "monitor.views=[]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (apt-get install faketime)"),
]


def train_with_clock(corpus: PreparedCorpus, run: Path, clock: Path, jumps: dict[str, str], *overrides: str) -> None:
    """Train, and set the clock as soon as a line of output starts in a certain way."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = train_command(corpus, run, *SETTINGS, *overrides)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            for start, offset in jumps.items():
                if line.startswith(start):
                    clock.write_text(offset)
    assert process.returncode == 0


def seconds_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of seconds in a record or in evidence, by the name of its field."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from seconds_in(each, f"{name}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from seconds_in(each, name)
    elif isinstance(value, int | float) and "seconds" in name:
        yield name, value


def test_no_time_is_negative(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    run, clock = tmp_path / "run", tmp_path / "clock"
    clock.write_text("+0")
    train_with_clock(tiny_corpus, run, clock, {"step 4/": "-1h", "step 8/": "+1d", "step 10/": "-2h"})
    clock.write_text("-3h")
    train_with_clock(tiny_corpus, run, clock, {}, "train.max_steps=14")

    records = list(read_journal(run / "journal/rank-0.jsonl"))
    second = max(number for number, record in enumerate(records) if record["kind"] == "started")
    for session in (records[:second], records[second:]):
        assert all(earlier["time"] <= later["time"] for earlier, later in pairwise(session))
    # The clock did jump.
    assert records[second]["time"] < records[0]["time"] < records[second - 1]["time"]
    negative = [(name, value) for record in records for name, value in seconds_in(record) if value < -1e-6]
    assert negative == []

    found = report(run)
    assert [
        (name, value) for answer in found.questions for name, value in seconds_in(dict(answer.evidence)) if value < 0
    ] == []
    assert "-" not in found.questions[0].answer
    state = RunState()
    for line in (run / "journal/rank-0.jsonl").read_bytes().splitlines(keepends=True):
        state.add_line(0, line)
    for moment in (time.time() - 86_400, time.time(), time.time() + 86_400):
        console = Console(width=100, height=40)
        with console.capture() as shown:
            console.print(RunScreen("run", state, moment))
        assert not re.search(r"(?<!e)-\d", shown.get()), shown.get()
