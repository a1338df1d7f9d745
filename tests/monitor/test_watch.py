"""Watching a run: what its records add up to, the picture at any size, and the live view on a real terminal."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tandem.errors import TandemError
from tandem.monitor.clock import PARTS as CLOCK_PARTS
from tandem.monitor.journal import Journal
from tandem.monitor.records import (
    Ended,
    Evaluated,
    GpuUse,
    HostSummary,
    HostUse,
    Noticed,
    Planned,
    Progressed,
    Record,
    Sampled,
    Saved,
    Started,
    Surveyed,
)
from tandem.monitor.watch import watch
from tandem.monitor.watch_draw import Column, Pen, apportion, sparkline, table
from tandem.monitor.watch_state import RunState
from tandem.monitor.watch_view import PARTS, Picture, Want, shared_out
from tests.monitor.made import made

BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
SECONDS = {"data": 0.5, "compute": 10.0, "communication": 6.0, "waiting": 2.0, "optimizer": 1.0, "other": 0.5}
UTF8, ASCII = Pen(coloured=True, plain=False), Pen(coloured=False, plain=True)


@pytest.fixture(autouse=True)
def a_usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich looks at these to find out what the terminal can do."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def started(step: int = 0, rank: int = 0, hosts: tuple[str, ...] = ("vm1", "vm2")) -> Started:
    return made(
        Started, step=step, rank=rank, max_steps=1000, hosts=list(hosts), world_size=2, parameters=61_400_000,
        device="cuda", precision="bfloat16",
    )  # fmt: skip


def progressed(step: int, loss: float = 3.0, **values: Any) -> Progressed:
    usual = {"max_steps": 1000, "steps": 10, "learning_rate": 1.5e-3, "seconds_left": 600.0, "seconds": SECONDS}
    return made(Progressed, step=step, train_loss=loss, tokens_per_second=12345.0, step_seconds=1.83, **usual | values)


def evaluated(step: int, bleu: float, loss: float = 2.5) -> Evaluated:
    return made(Evaluated, step=step, split="dev", bleu=bleu, eval_loss=loss, perplexity=12.2, seconds=9.9)


def sampled(step: int, host: str = "vm1", gpus: int = 0, sent: float = 94.0) -> Sampled:
    gpu = GpuUse(
        name="V100", utilisation=1.0, memory_used_bytes=12, memory_total_bytes=16, watts=150.0, watts_cap=300.0
    )
    use = HostUse(
        host=host, seconds=1.0, cpu=0.85, memory_used_bytes=31, memory_total_bytes=100, interface="eth0",
        disk_read_mbyte_per_second=0.0, disk_written_mbyte_per_second=0.0, link_mbit_per_second=100,
        sent_mbyte_per_second=sent / 8, sent_mbit_per_second=sent,
        received_mbyte_per_second=5.0, received_mbit_per_second=40.0, gpus=[gpu] * gpus,
    )  # fmt: skip
    return Sampled(step=step, use=use)


def surveyed(step: int, *hosts: str) -> Surveyed:
    summaries = [
        HostSummary(
            host=host, cpu=0.42, memory=0.5, sent_mbit_per_second=88.0, received_mbit_per_second=16.0,
            link_mbit_per_second=None, gpu_count=0, gpu_utilisation=None, gpu_memory=None, gpu_power=None, seconds={},
        )
        for host in hosts
    ]  # fmt: skip
    return Surveyed(step=step, hosts=summaries)


def line(record: Record, second: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(BEGAN + second, UTC).isoformat(timespec="milliseconds")
    told: dict[str, Any] = json.loads(json.dumps({"time": moment, **record.as_dict()}))
    return told


def state_of(*told: tuple[float, Record], rank: int = 0) -> RunState:
    """What these records of a rank, each written at some second, add up to."""
    state = RunState()
    for second, record in told:
        state.take(rank, line(record, second))
    return state


def drawn(
    state: RunState, second: float, width: int = 80, height: int = 24, every: int | None = None, **console: Any
) -> list[str]:
    """The picture at some second, fitted to a screen."""
    output = StringIO()
    screen = Console(file=output, width=width, height=height, **console)
    screen.print(Picture("runs/wmt", state, BEGAN + second, every, fitted=True))
    return output.getvalue().removesuffix("\n").split("\n")


def headline(state: RunState, second: float, every: int | None = None) -> str:
    return drawn(state, second, every=every)[0].removeprefix("runs/wmt").strip()


def full_story(hosts: int = 2) -> RunState:
    names = tuple(f"vm{number}" for number in range(1, hosts + 1))
    told: list[tuple[float, Record]] = [
        (0, started(hosts=names)),
        (0, made(Planned, step=0, reason="allreduce: " + "a reason of some length " * 8)),
        (0, Noticed(step=0, message="7 training pairs are longer than model.max_length and left out")),
    ]
    for number in range(1, 21):
        told.append((10 * number, progressed(10 * number, 8 - number / 4)))
        told.append((10 * number, surveyed(10 * number, *names)))
        told.append((10 * number, evaluated(10 * number, 20 + 5 * math.sin(number), 5 - number / 8)))
        told.append((10 * number, made(Saved, step=10 * number)))
    return state_of(*told, (201, sampled(204, gpus=2)))


# --- what the records add up to


@pytest.mark.parametrize(
    ("told", "second", "expected"),
    [
        ([], 5, "waiting for the first record"),
        ([(0, started())], 5, "starting"),
        ([(0, started()), (1, sampled(1))], 5, "starting"),
        ([(0, started()), (1, sampled(2))], 5, "training"),
        ([(0, started())], 61, "no sign of life for 61 s"),
        ([(0, started()), (9, progressed(10))], 12, "training"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 20, "training"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 57, "no sign of life for 45 s"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 3624, "no sign of life for 1:00:12"),
        # Without samples, stretches of 20 s allow for a minute.
        ([(0, started()), (9, progressed(10))], 68, "training"),
        ([(0, started()), (9, progressed(10, seconds={"compute": 100.0}))], 300, "training"),
        ([(0, started()), (9, progressed(10)), (9, made(Saved, step=10))], 12, "training, saved step 10"),
        ([(0, started()), (9, progressed(10)), (9, made(Ended, step=10, reason="finished"))], 999, "ended: finished"),
        ([(0, Noticed(step=0, message="before the start")), (1, started())], 2, "starting"),
    ],
)
def test_the_state_in_a_few_words(told: list[tuple[float, Record]], second: float, expected: str) -> None:
    assert headline(state_of(*told), second) == expected


def test_an_evaluation_is_seen_while_it_lasts() -> None:
    told: list[tuple[float, Record]] = [(0, started()), (9, progressed(10)), (19, progressed(20))]
    assert headline(state_of(*told), 20, every=15) == "evaluating"
    assert headline(state_of(*told), 20, every=25) == "training"
    assert headline(state_of(*told), 20) == "training", "nobody knows"
    told.append((22, evaluated(20, 5.0)))
    assert headline(state_of(*told), 23, every=20) == "training"
    told.append((39, progressed(40)))
    assert headline(state_of(*told), 40) == "evaluating", "as after step 20"
    assert headline(state_of((0, started()), (9, progressed(1000))), 10) == "evaluating", "as at every end"


def test_an_evaluation_between_two_log_lines_is_over_by_the_second() -> None:
    state = state_of((0, started()), (9, progressed(10)), (15, evaluated(15, 5.0)), (19, progressed(20)))
    assert headline(state, 20, every=15) == "training"


def test_a_run_that_is_continued() -> None:
    """The newest session counts for the time; the curves go on where it took them up."""
    state = state_of(
        (0, started()), (10, progressed(10, 9.0)), (20, progressed(20, 8.0)), (20, evaluated(20, 11.0)),
        (30, progressed(30, 7.0)), (40, progressed(40, 6.0)), (40, evaluated(40, 22.0)),
        (1000, Noticed(step=20, message="continuing after step 20")), (1000, started(step=20)),
        (1010, progressed(30, 7.5, seconds_left=300.0)),
    )  # fmt: skip
    assert list(state.losses) == [(10, 9.0), (20, 8.0), (30, 7.5)]
    assert [one.step for one in state.evaluations] == [20]
    assert "step 30 of 1,000   3.0%   0:00:20 so far   0:04:50 left" in drawn(state, 1020)[2]
    assert "session 2" in drawn(state, 1020)[2]


def test_what_is_dead_has_no_time_left() -> None:
    told: list[tuple[float, Record]] = [(0, started()), (9, progressed(10)), (10, sampled(11))]
    assert "0:00:12 so far   0:09:57 left" in drawn(state_of(*told), 12)[2]
    assert "0:00:10 so far   epoch" in drawn(state_of(*told), 100)[2]
    told.append((11, made(Ended, step=10)))
    assert "0:00:11 so far   epoch" in drawn(state_of(*told), 100)[2]


def test_all_processes_of_a_session_are_one_session() -> None:
    state = RunState()
    for rank in (1, 0):
        state.take(rank, line(started(rank=rank), rank / 10))
        state.take(rank, line(Noticed(step=0, message="said by all"), 1 + rank / 10))
    for step in (10, 20):
        for rank in (1, 0):
            state.take(rank, line(progressed(step, 9.0 - step, seconds={"compute": 1.0 + rank}), step))
    assert state.sessions == 1
    assert list(state.losses) == [(10, -1.0), (20, -11.0)]
    assert [note.text for note in state.notes] == ["said by all"]
    assert state.session is not None
    assert state.session.progressed is not None
    assert state.session.progressed.seconds == {"compute": 1.0}, "of the lowest rank"


def test_a_host_that_has_other_ranks_after_a_restart() -> None:
    state = state_of((0, started()), (10, progressed(10)))
    for second, record in ((500, started(step=10, rank=3)), (510, progressed(20, 2.0)), (511, sampled(21, "vm9"))):
        state.take(3, line(record, second))
    assert state.sessions == 2
    assert state.losses[-1] == (20, 2.0)
    # What is left of the old session does not speak for the new one.
    state.take(0, line(made(Ended, step=10, reason="failed: long ago"), 512))
    assert headline(state, 513) == "training"


def test_the_lowest_rank_says_why_it_ended() -> None:
    state = RunState()
    for rank in (0, 1):
        state.take(rank, line(started(rank=rank), 0))
    state.take(1, line(made(Ended, step=5, reason="failed: lost the connection"), 9))
    assert headline(state, 10) == "ended: failed: lost the connection"
    state.take(0, line(made(Ended, step=5, reason="failed: no space left"), 9))
    assert headline(state, 10) == "ended: failed: no space left"


def test_the_newest_of_every_host() -> None:
    state = state_of(
        (0, started()), (9, sampled(9, "vm1", sent=90.0)), (10, surveyed(10, "vm1", "vm2")),
        (11, sampled(12, "vm1", sent=70.0)),
    )  # fmt: skip
    assert {name: (host.sampled, host.summary.sent_mbit_per_second) for name, host in state.hosts.items()} == {
        "vm1": (True, 70.0),
        "vm2": (False, 88.0),
    }
    assert state.session is not None
    assert state.session.step == 11, "step 12 is under way, and samples are ahead of the log"


@pytest.mark.parametrize(
    "strange",
    [{}, {"time": "never", "kind": "started"}, {"kind": "saved"}, {"time": "2026-01-01", "kind": "sung"},
     {"time": "2026-01-01T00:00:00+00:00", "kind": "started", "step": 0},
     {"time": "2026-01-01T00:00:00+00:00", "kind": "sampled", "step": 0, "use": None},
     {"time": 5, "kind": ["started"]}],
)  # fmt: skip
def test_what_another_version_wrote_is_passed_over(strange: dict[str, Any]) -> None:
    state = RunState()
    state.take(0, strange)
    assert headline(state, 5) == "its journals are of another version of Tandem"
    for second, record in ((0, started()), (9, progressed(10))):
        state.take(0, line(record, second))
    assert headline(state, 10) == "training"


# --- the picture


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
        assert " ".join(row) == f"vm{number} 42% 50% 88.0 11.0 16.0 2.0 ? - - - last log"
    assert len(rows) == hosts


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
    state.take(0, line(Noticed(step=0, message="größer"), 202))
    output = BytesIO()
    with TextIOWrapper(output, encoding="latin-1") as terminal:
        Console(file=terminal, width=80).print(Picture("rüns", state, BEGAN + 203))
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
    assert list(PARTS) == [*CLOCK_PARTS, "other"]
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
        ([math.nan], 9, "x"),
        ([1.0], 0, ""),
    ],
)
def test_sparklines(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width, UTF8) == expected
    assert len(sparkline(values, width, ASCII)) == len(expected)


@pytest.mark.parametrize(
    ("shares", "places", "expected"),
    [
        ([1, 1, 1], 10, [4, 3, 3]),
        ([0.5, 0.3, 0.2], 10, [5, 3, 2]),
        ([0.996, 0.004], 100, [100, 0]),
        ([0, 0], 10, [0, 0]),
    ],
)
def test_shares_as_whole_places(shares: list[float], places: int, expected: list[int]) -> None:
    assert apportion(shares, places) == expected


def test_a_table_gives_up_space_then_names_then_columns() -> None:
    columns = [
        Column("name", ["a-rather-long-name"]),
        Column("kept", ["1"]),
        Column("first to go", ["2"], spare=2),
        Column("next", ["3"], spare=1),
    ]
    for width, heading in (
        (43, "name                kept  first to go  next"),
        (42, "name               kept first to go next"),
        (30, "name     kept first to go next"),
        (29, "name               kept next"),
        (17, "name         kept"),
        (10, "name     kept"),
    ):
        assert table(columns, width)[0].plain == heading


@pytest.mark.parametrize(
    ("room", "expected"), [(0, [0, 0, 0]), (3, [1, 0, 0]), (7, [5, 0, 0]), (11, [5, 2, 0]), (14, [5, 2, 2])]
)
def test_room_is_shared_by_weight(room: int, expected: list[int]) -> None:
    wants = [Want(20, 5, beside=2), Want(8, 2, beside=2), Want(6, 2, beside=1)]
    assert shared_out(wants, room) == expected
    assert shared_out(wants, room + 100)[0] == 20


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
    journal(tmp_path, started(), progressed(10), made(Saved, step=10))
    assert "training, saved step 10" in printed(tmp_path)


def test_it_knows_from_the_settings_when_evaluations_are_due(tmp_path: Path) -> None:
    journal(tmp_path, started(), progressed(20))
    (tmp_path / "config.yaml").write_text("evaluation:\n  every_steps: 20\n", encoding="utf-8")
    assert "evaluating" in printed(tmp_path)
    (tmp_path / "config.yaml").write_text("damaged: [", encoding="utf-8")
    assert "training" in printed(tmp_path)


def test_watching_does_not_load_torch() -> None:
    code = "import sys, tandem.monitor.watch; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


class Terminal:
    """A real terminal of 80 x 24 in which a run is watched."""

    def __init__(self, run: Path) -> None:
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        code = (
            "import sys, pathlib, rich.console, tandem.monitor.watch as w;"
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


def test_a_live_view_ends_with_the_run_and_leaves_the_last_picture(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    terminal = Terminal(tmp_path)
    terminal.read_until("waiting for the first record")
    journal(tmp_path, started(), progressed(10, 4.5))
    terminal.read_until("4.500")
    journal(tmp_path, progressed(20, 3.25), made(Ended, step=20, reason="finished"))
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
