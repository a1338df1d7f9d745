"""Watching a run: the picture at any size, and the live view on a real terminal."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
import pty
import struct
import subprocess
import sys
import termios
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tandem.errors import TandemError
from tandem.monitor.journal import Journal
from tandem.monitor.records import Ended, Noticed, Planned, Record, Saved
from tandem.monitor.step_clock import STEP_PARTS
from tandem.monitor.watch.drawing import CharacterSet, sparkline, table
from tandem.monitor.watch.live import watch
from tandem.monitor.watch.panels import PARTS, RunScreen
from tandem.monitor.watch.run_state import RunState
from tests.monitor.example_records import example
from tests.monitor.watch.test_run_state import (
    BEGAN,
    drawn,
    evaluated,
    line,
    progressed,
    sampled,
    started,
    state_of,
    surveyed,
)

UTF8, ASCII = CharacterSet(coloured=True, ascii_only=False), CharacterSet(coloured=False, ascii_only=True)


def test_the_gain_over_another_model_is_shown() -> None:
    begun = dataclasses.replace(started(), origin="runs/old/best", frozen_parameters=10_000_000)
    state = state_of((0, begun), (1, evaluated(0, 12.25)), (2, progressed(10)), (3, evaluated(10, 31.5)))
    terminal = StringIO()
    Console(file=terminal, width=100, height=40).print(RunScreen("run", state, BEGAN + 4))
    assert "best 31.50 at step 10, +19.25 since the start" in terminal.getvalue()
    assert "61.4 M parameters (10.0 M frozen)" in terminal.getvalue()


def full_story(hosts: int = 2) -> RunState:
    names = tuple(f"vm{number}" for number in range(1, hosts + 1))
    told: list[tuple[float, Record]] = [
        (0, started(hosts=names)),
        (0, example(Planned, step=0, reason="allreduce: " + "a reason of some length " * 8)),
        (0, Noticed(step=0, message="7 training pairs are longer than model.max_length and left out")),
    ]
    for number in range(1, 21):
        told.append((10 * number, progressed(10 * number, 8 - number / 4)))
        told.append((10 * number, surveyed(10 * number, *names)))
        told.append((10 * number, evaluated(10 * number, 20 + 5 * math.sin(number), 5 - number / 8)))
        told.append((10 * number, example(Saved, step=10 * number)))
    return state_of(*told, (201, sampled(204, gpus=2)))


@pytest.mark.parametrize("hosts", [1, 2, 5, 20])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (60, 20), (40, 10), (20, 5), (1, 1)])
def test_it_fits_the_screen(size: tuple[int, int], hosts: int) -> None:
    lines = drawn(full_story(hosts), 203, *size)
    assert len(lines) <= size[1]
    assert max(map(cell_len, lines)) <= size[0]


@pytest.mark.parametrize(("size", "hosts"), [((80, 24), 2), ((120, 40), 5)])
def test_everything_is_there(size: tuple[int, int], hosts: int) -> None:
    text = "\n".join(drawn(full_story(hosts), 203, *size))
    for expected in (
        "training, saved step 200", "step 203 of 1,000   20.3%   0:03:23 so far   0:09:57 left", "train loss    3.000",
        "learning rate 1.50e-03", "dev loss      2.500", "best 2.500 at step 200", "dev BLEU      24.56",
        "best 24.95 at step 140", "12,345  tokens/s   1.83 s/step", "the last 10 steps went in process 0 (20 s)",
        "compute     50%", "communication  30%", "waiting  10%", "2 x 100%", "75%", "longer than model.max_length",
    ):  # fmt: skip
        assert expected in text
    rows = [row.split() for row in text.split("\n") if row.startswith("vm")]
    assert " ".join(rows[0]) == "vm1 85% 31% 94.0 11.8 40.0 5.0 94% 2 x 100% 75% 50% now"
    for number, row in enumerate(rows[1:], start=2):
        assert " ".join(row) == f"vm{number} 42% 50% 88.0 11.0 16.0 2.0 ? - - - now"
    assert len(rows) == hosts


@pytest.mark.parametrize("width", [80, 120])
def test_other_programs_and_the_hypervisor_are_shown_beside_the_run(width: int) -> None:
    seen = sampled(4)
    shared = dataclasses.replace(seen, use=dataclasses.replace(seen.use, cpu=0.98, cpu_own=0.46, cpu_steal=0.04))
    heading, row = (line.split() for line in drawn(state_of((0, started()), (5, shared)), 6, width, 40) if "vm1" in line
                    or line.startswith("host"))  # fmt: skip
    assert heading[:5] == ["host", "CPU", "own", "others", "stolen"]
    assert row[:5] == ["vm1", "98%", "46%", "48%", "4%"]


def test_a_bleu_of_some_sentences_says_so() -> None:
    first, whole = dataclasses.replace(evaluated(10, 0.1), sentences=100, all_sentences=1014), evaluated(20, 5.0)
    text = "\n".join(drawn(state_of((0, started()), (10, first)), 11))
    assert "best 0.10 (first 100 sentences) at step 10" in text
    assert "0.10  best (first 100 sentences)  9.9 s" in text
    text = "\n".join(drawn(state_of((0, started()), (10, first), (20, whole)), 21))
    assert "best 5.00 at step 20" in text
    assert text.count("(first 100 sentences)") == 1


def test_more_hosts_than_lines() -> None:
    text = "\n".join(drawn(full_story(20), 203))
    assert text.count("\nvm") == 4
    assert "and 16 more hosts" in text
    assert "evaluated at step" in text


def test_the_bar_without_colours_tells_the_parts_apart() -> None:
    coloured = drawn(full_story(), 203, force_terminal=True, color_system="standard")
    plain = drawn(full_story(), 203, force_terminal=True, no_color=True)
    bar = next(row for row in plain if "▓▓▓" in row)
    assert [bar.count(sign) for sign in "▚█▓░▒▞▄·"] == [2, 40, 24, 8, 4, 0, 0, 2]
    assert not any("▓" in row for row in coloured)
    assert any("\x1b[31m█" in row for row in coloured), "communication is red"


def test_a_terminal_that_knows_only_ascii() -> None:
    state = full_story()
    state.add_line(0, line(Noticed(step=0, message="größer"), 202))
    output = BytesIO()
    with TextIOWrapper(output, encoding="latin-1") as terminal:
        Console(file=terminal, width=80).print(RunScreen("rüns", state, BEGAN + 203))
        terminal.flush()
        shown = output.getvalue().decode("ascii")
    assert shown.startswith("r?ns ")
    assert "gr??er" in shown
    assert "dddccccc" not in shown, "0.5 of 20 s are two places of 80"
    assert "\nddccc" in shown


def test_texts_cannot_break_the_picture() -> None:
    message = "two\nlines [bold]and\x1b[2J a\ttab [/]"
    state = state_of((0, started()), (1, Noticed(step=0, message=message)), (2, surveyed(0, "a\nb\x1b[H", "[red]")))
    text = "\n".join(drawn(state, 3))
    assert "two lines [bold]and [2J a tab [/]" in text
    assert "a b [H" in text
    assert "\n[red]" in text
    assert "\x1b" not in text


def test_a_loss_that_is_no_number() -> None:
    state = state_of((0, started()), (9, progressed(10, 2.0)), (19, progressed(20, math.nan)))
    assert "train loss      nan  ▁x" in drawn(state, 20)[4]


def test_every_part_of_the_clock_has_its_colour() -> None:
    assert list(PARTS) == [*STEP_PARTS, "other"]
    assert len({paint.style for paint in PARTS.values()}) == len(PARTS)
    assert len({paint.pattern for paint in PARTS.values()}) == len(PARTS)
    assert len({paint.letter for paint in PARTS.values()}) == len(PARTS)


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 5, ""),
        ([1.0], 5, "▁"),
        ([0.0, 1.0, 7.0], 5, "▁▂█"),
        ([100.0, 0.0, 1.0], 2, "▁█"),
        ([0.0, math.nan, math.inf, 1.0], 9, "▁xx█"),
        ([-1e308, 0.0, 1e308], 9, "▁▅█"),
        ([math.nan], 9, "x"),
        ([1.0], 0, ""),
    ],
)
def test_sparklines(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width, UTF8) == expected
    assert len(sparkline(values, width, ASCII)) == len(expected)


def test_a_table_gives_up_space_then_names_then_columns() -> None:
    columns = [("name", 0), ("kept", 0), ("first to go", 2), ("next", 1)]
    cells = [Text(cell) for cell in ("a-rather-long-name", "1", "2", "3")]
    for width, heading in (
        (43, "name                kept  first to go  next"),
        (42, "name               kept first to go next"),
        (30, "name     kept first to go next"),
        (29, "name               kept next"),
        (17, "name         kept"),
        (10, "name     kept"),
    ):
        assert table(columns, [cells], width)[0].plain == heading


# --- the command


def journal(run: Path, *records: Record, rank: int = 0) -> None:
    written = Journal(run / "journal", rank)
    for record in records:
        written.show(record)
    written.close()


def printed(run: Path, once: bool = False) -> str:
    output = StringIO()
    watch(run, Console(file=output, width=80), once)
    return output.getvalue()


def test_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no such directory"):
        printed(tmp_path / "absent")
    with pytest.raises(TandemError, match="not a run"):
        printed(tmp_path)


@pytest.mark.parametrize("sign", [".lock", "run.json", "journal"])
def test_a_run_that_has_not_written_yet(tmp_path: Path, sign: str) -> None:
    (tmp_path / sign).mkdir()
    assert "waiting for the first record" in printed(tmp_path, once=True)


def test_where_nothing_can_be_redrawn_it_is_shown_once(tmp_path: Path) -> None:
    journal(tmp_path, started(), progressed(10), example(Saved, step=10))
    assert "training, saved step 10" in printed(tmp_path)


def test_it_knows_from_the_settings_when_evaluations_are_due(tmp_path: Path) -> None:
    journal(tmp_path, started(), progressed(20))
    (tmp_path / "config.yaml").write_text("evaluation:\n  every_steps: 20\n", encoding="utf-8")
    assert "evaluating" in printed(tmp_path)
    (tmp_path / "config.yaml").write_text("damaged: [", encoding="utf-8")
    assert "training" in printed(tmp_path)


def test_watching_does_not_load_torch() -> None:
    code = "import sys, tandem.monitor.watch.live; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


class Terminal:
    """A real terminal of 80 x 24 in which a run is watched."""

    def __init__(self, run: Path) -> None:
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        code = (
            "import sys, pathlib, rich.console, tandem.monitor.watch.live as w;"
            "w.watch(pathlib.Path(sys.argv[1]), rich.console.Console(), once=False)"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(run)], stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(terminal)
        self.shown = ""

    def read_until(self, text: str) -> None:
        while text not in self.shown:
            chunk = self._read()
            assert chunk, self.shown
            self.shown += chunk

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def close(self) -> int:
        """Read what is left; the exit code."""
        while chunk := self._read():
            self.shown += chunk
        os.close(self._master)
        return self.process.wait(timeout=60)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            return ""


@pytest.mark.slow
def test_a_live_view_ends_with_the_run_and_leaves_the_last_picture(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    terminal = Terminal(tmp_path)
    terminal.read_until("waiting for the first record")
    journal(tmp_path, started(), progressed(10, 4.5))
    terminal.read_until("4.500")
    journal(tmp_path, progressed(20, 3.25), example(Ended, step=20, reason="finished"))
    assert terminal.close() == 0
    live, last = terminal.shown.split("\x1b[?1049l")
    assert live.startswith("\x1b[?1049h"), "on a screen of its own"
    assert "ended: finished" in last
    assert "3.250" in last


def test_ctrl_c_leaves_quietly(tmp_path: Path) -> None:
    journal(tmp_path, started(), progressed(10, 4.5))
    terminal = Terminal(tmp_path)
    terminal.read_until("4.500")
    terminal.press_ctrl_c()
    assert terminal.close() == 0
    after = terminal.shown.split("\x1b[?1049l")[1]
    assert "Traceback" not in terminal.shown
    assert not after.replace("\x1b[?25h", "").strip()
