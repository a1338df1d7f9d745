"""A view in a thread: shown everything in order, and neither its faults nor its slowness are the training's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tandem.monitor import background_view
from tandem.monitor.background_view import BackgroundView
from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.records import Noticed, Record
from tandem.monitor.views import View
from testbed.journals import read_journal

OFF = "and is switched off; the training goes on without it"


def notice(step: int) -> Noticed:
    return Noticed(step=step, message=f"note {step}")


class Seeing(View):
    """Keeps what it is shown; waits at a gate, if it has one, before each record."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.seen: list[int] = []
        self.closed = False
        self.reached = threading.Event()
        self._gate = gate

    def show(self, record: Record) -> None:
        self.reached.set()
        if self._gate is not None:
            self._gate.wait()
        self.seen.append(record.step)

    def close(self) -> None:
        self.closed = True


def test_everything_is_shown_in_order_and_closed() -> None:
    seeing = Seeing()
    view = BackgroundView("seeing", lambda: seeing)
    for step in range(1000):
        view.show(notice(step))
    view.close()
    assert seeing.seen == list(range(1000))
    assert seeing.closed
    assert view.pop_trouble() == ""


def test_the_troubles_of_a_view_are_passed_on() -> None:
    class Troubled(View):
        def pop_trouble(self) -> str:
            return "no room"

    view = BackgroundView("troubled", Troubled)
    view.close()
    assert view.pop_trouble() == "no room"
    assert view.pop_trouble() == ""


@pytest.mark.parametrize("error", [ValueError("no login"), SystemExit("no login")])
def test_a_view_that_cannot_be_made_is_told_of_once(error: BaseException) -> None:
    def make() -> View:
        raise error

    view = BackgroundView("faulty", make)
    view.close()
    assert view.pop_trouble() == f"the view faulty failed ({type(error).__name__}: no login) {OFF}"
    view.show(notice(1))
    view.stepped(1)
    view.close()
    assert view.pop_trouble() == ""


def test_a_view_that_hangs_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_view, "WAITING_RECORDS", 3)
    monkeypatch.setattr(background_view, "CLOSE_SECONDS", 0.0)
    gate = threading.Event()
    hanging, other = Seeing(gate), Seeing()
    recorder = Recorder(Journal(tmp_path, 0), [BackgroundView("hanging", lambda: hanging), other])
    recorder.record(notice(1))
    hanging.reached.wait()
    monkeypatch.setattr(background_view, "SLOW_SECONDS", 0.0)
    for step in range(2, 8):
        recorder.record(notice(step))
        recorder.stepped(step)
    recorder.close()
    said = [record["message"] for record in read_journal(tmp_path / "rank-0.jsonl")]
    assert [line for line in said if not line.startswith("note")] == [
        "the view hanging hangs; the training goes on, and its records wait",
        "the view hanging did not finish within 0 s and is left behind; 7 records wait that it was not shown",
    ]
    assert set(range(1, 8)) <= set(other.seen)
    gate.set()


def test_a_view_that_hangs_while_it_is_made_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_view, "SLOW_SECONDS", 0.0)
    reached, gate = threading.Event(), threading.Event()

    def make() -> View:
        reached.set()
        gate.wait()
        return View()

    view = BackgroundView("hanging", make)
    reached.wait()
    assert view.pop_trouble() == "the view hanging hangs; the training goes on, and its records wait"
    gate.set()
    view.close()


def test_all_views_are_told_to_close_before_one_that_hangs_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one opens the first one's gate when it is closed: without that the first would hang."""
    monkeypatch.setattr(background_view, "CLOSE_SECONDS", 60.0)
    gate = threading.Event()

    class Opening(View):
        def close(self) -> None:
            gate.set()

    waiting = Seeing(gate)
    views = [BackgroundView("waiting", lambda: waiting), BackgroundView("opening", Opening)]
    recorder = Recorder(Journal(tmp_path, 0), views)
    recorder.record(notice(1))
    recorder.close()
    assert (waiting.seen, waiting.closed) == ([1], True)
    assert [record["message"] for record in read_journal(tmp_path / "rank-0.jsonl")] == ["note 1"]


def test_a_view_that_was_too_slow_goes_on_and_the_loss_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_view, "WAITING_RECORDS", 2)
    gate = threading.Event()
    slow = Seeing(gate)
    view = BackgroundView("slow", lambda: slow)
    view.show(notice(1))
    slow.reached.wait()
    for step in range(2, 6):
        view.show(notice(step))
    gate.set()
    view.close()
    assert slow.seen == [1, 2, 3]
    assert view.pop_trouble() == "the view slow goes on; it was not shown 2 records"


def test_steps_are_shown_only_to_a_view_that_has_the_time() -> None:
    class Stepping(Seeing):
        def stepped(self, step: int) -> None:
            self.seen.append(-step)

    gate = threading.Event()
    stepping = Stepping(gate)
    view = BackgroundView("stepping", lambda: stepping)
    view.show(notice(1))
    stepping.reached.wait()
    view.stepped(1)
    gate.set()
    view.close()
    assert stepping.seen == [1]
