"""The journal: appended line by line, mended after a kill, read without the torn lines."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.journal_reader import read_record
from tandem.monitor.network_interfaces import host_name
from tandem.monitor.records import Ended, Evaluated, Noticed, Progressed, Record, Sample, Saved, Started
from tandem.monitor.views import View
from testbed.journals import read_journal
from tests.disks import small_disk
from tests.monitor.example_records import example


def write(directory: Path, *messages: str, rank: int = 0) -> Path:
    """One session that notices these things."""
    journal = Journal(directory, rank)
    for step, message in enumerate(messages):
        journal.show(Noticed(step=step, message=message))
    journal.close()
    return directory / f"rank-{rank}.jsonl"


def messages(path: Path) -> list[str]:
    return [record["message"] for record in read_journal(path)]


def test_a_line_a_record_with_the_time_and_the_kind(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    path = write(tmp_path / "new" / "journal", "first", "second")
    after = datetime.now(UTC)
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert records == list(read_journal(path))
    for step, (record, message) in enumerate(zip(records, ("first", "second"), strict=True)):
        moment = datetime.fromisoformat(record.pop("time"))
        assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= moment <= after
        assert record == {"kind": "noticed", "step": step, "message": message}


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (example(Started, step=3, host="h"), "started"),
        (example(Progressed, step=3, seconds={"data": 0.25, "other": 1.5}), "progressed"),
        (example(Evaluated, step=3, samples=[Sample(source="a", reference="b", hypothesis="c")]), "evaluated"),
        (example(Saved, step=3, path="/x"), "saved"),
        (example(Noticed, step=3), "noticed"),
        (example(Ended, step=3, best_bleu=None), "ended"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_record_comes_back_whole(tmp_path: Path, record: Record, kind: str) -> None:
    journal = Journal(tmp_path, 0)
    journal.show(record)
    journal.close()
    (read,) = read_journal(tmp_path / "rank-0.jsonl")
    del read["time"]
    assert read == {**record.as_dict(), "kind": kind}
    assert read["step"] == 3


def test_a_record_is_on_the_disk_before_the_next_one(tmp_path: Path) -> None:
    """A process that is killed has lost at most the record it was writing."""
    journal = Journal(tmp_path, 0)
    for number in range(3):
        journal.show(Noticed(step=number, message=str(number)))
        assert messages(tmp_path / "rank-0.jsonl") == [str(n) for n in range(number + 1)]
    journal.close()


def test_each_rank_has_its_own_file(tmp_path: Path) -> None:
    assert messages(write(tmp_path, "zero", rank=0)) == ["zero"]
    assert messages(write(tmp_path, "eleven", rank=11)) == ["eleven"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.jsonl", "rank-11.jsonl"]


def test_two_sessions_append(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    first = (tmp_path / "rank-0.jsonl").read_bytes()
    path = write(tmp_path, "c")
    assert messages(path) == ["a", "b", "c"]
    assert path.read_bytes().startswith(first)
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    "text",
    [
        "Zwölf Boxkämpfer 🥊 日本語",
        'quotes " and \\ backslashes',
        "lines\nand\r\nmore\u2028of\u2029them\x85\x0b\x0c",
        "\x00\x1b[31m",
        "not UTF-8: \udcff",
        "",
    ],
)
def test_any_text_comes_back_in_one_line(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text, "next")
    assert messages(path) == [text, "next"]
    assert path.read_bytes().count(b"\n") == 2


def test_readable_as_it_is(tmp_path: Path) -> None:
    assert "Größe" in write(tmp_path, "Größe").read_text(encoding="utf-8")


# --- after a kill


def cuts_of_the_last_line() -> list[int]:
    """How many bytes a kill may have left of a line: few, half, up to the middle of a character, all but its end."""
    line = (json.dumps({"time": "t", "kind": "noticed", "step": 1, "message": "größer"}, ensure_ascii=False)).encode()
    return [1, 5, len(line) // 2, line.index("ö".encode()) + 1, len(line) - 1]


@pytest.mark.parametrize("kept", cuts_of_the_last_line())
def test_a_torn_last_line_is_ended_and_passed_over(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path, "whole")
    whole = path.read_bytes()
    line = json.dumps({"time": "t", "kind": "noticed", "step": 1, "message": "größer"}, ensure_ascii=False).encode()
    path.write_bytes(whole + line[:kept])
    assert messages(path) == ["whole"], "while it is torn"
    write(tmp_path, "after")
    assert messages(path) == ["whole", "after"], "and once the next session has begun"
    assert path.read_bytes().startswith(whole + line[:kept] + b"\n{")


def test_a_whole_record_without_its_newline_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, "one", "two")
    path.write_bytes(path.read_bytes()[:-1])
    write(tmp_path, "three")
    assert messages(path) == ["one", "two", "three"]
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n"])
def test_an_empty_file_needs_no_mending(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_bytes(content)
    write(tmp_path, "first")
    assert messages(path) == ["first"]
    assert path.read_bytes().startswith(content + b"{")


def test_garbage_between_records_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, "a")
    path.write_bytes(path.read_bytes() + b'{"kind": "noti\n\xff\xfe\x00\n\n')
    assert messages(write(tmp_path, "b")) == ["a", "b"]


# --- the recorder


class Witness(View):
    def __init__(self, name: str, seen: list[tuple[str, Any]]) -> None:
        self.name, self.seen = name, seen

    def show(self, record: Record) -> None:
        self.seen.append((self.name, record))

    def working(self, stage: str, done: int, total: int) -> None:
        self.seen.append((self.name, f"{stage} {done}/{total}"))

    def close(self) -> None:
        self.seen.append((self.name, "closed"))


class Faulty(Witness):
    """A view that raises at one of the occasions that views are told of."""

    def __init__(self, occasion: str, seen: list[tuple[str, Any]]) -> None:
        super().__init__("faulty", seen)

        def fail(*_: object) -> None:
            seen.append((self.name, occasion))
            raise ValueError("two\nlines")

        setattr(self, occasion, fail)


def test_a_recorder_tells_every_view_in_turn(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    recorder = Recorder(Journal(tmp_path, 0), [Witness("plot", seen), Witness("console", seen)])
    record = Noticed(step=1, message="m")
    recorder.record(record)
    recorder.working("evaluating", 1, 2)
    recorder.close()
    assert seen == [(name, what) for what in (record, "evaluating 1/2", "closed") for name in ("plot", "console")]
    assert messages(tmp_path / "rank-0.jsonl") == ["m"]


@pytest.mark.parametrize("occasion", ["show", "stepped", "working", "close"])
def test_a_view_that_raises_is_switched_off_and_named_once(tmp_path: Path, occasion: str) -> None:
    seen: list[tuple[str, Any]] = []
    recorder = Recorder(Journal(tmp_path, 0), [Faulty(occasion, seen), Witness("console", seen), Faulty("show", seen)])
    for step in (1, 2):
        recorder.record(Noticed(step=step, message=f"step {step}"))
        recorder.stepped(step)
        recorder.working("evaluating", step, 2)
    recorder.close()
    off = (
        "the view tests.monitor.test_journal:Faulty failed (ValueError: two lines) and is switched off; "
        "the training goes on without it"
    )
    said = messages(tmp_path / "rank-0.jsonl")
    assert sorted(said) == ["step 1", "step 2", off, off]
    assert [what.message for name, what in seen if name == "console" and isinstance(what, Noticed)] == said
    assert seen.count(("faulty", "show")) == (2 if occasion == "show" else 1)
    assert ("console", "closed") in seen


def fill(disk: Path) -> Path:
    """Leave no byte on a small disk; the file that takes the room."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return filler


def test_a_full_disk_costs_records_which_are_counted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        seen: list[tuple[str, Any]] = []
        recorder = Recorder(Journal(disk, 3), [Witness("console", seen)])
        recorder.record(Noticed(step=1, message="before"))
        filler = fill(disk)
        # More than there is room for in what is left of the file's last block.
        for step in range(2, 12):
            recorder.record(Noticed(step=step, message="m" * 1000))
        filler.unlink()
        recorder.record(Noticed(step=12, message="after"))
        recorder.close()
        lines = (disk / "rank-3.jsonl").read_bytes().splitlines()
        records = [json.loads(line) for line in lines if read_record(line) is not None]
    kept = sum(record["message"] == "m" * 1000 for record in records)
    assert records[0]["message"] == "before"
    assert [record["message"] for record in records[-2:]] == [
        f"rank 3 on {host_name()}: {disk}/rank-3.jsonl: {10 - kept} records could not be written (the disk is full) "
        "and are lost",
        "after",
    ]
    # On the console all records are shown, and the trouble once, and once when it is over.
    shown = [what.message for _, what in seen if isinstance(what, Noticed)]
    said = [message for message in shown if "rank-3.jsonl" in message]
    assert len(shown) == 12 + len(said)
    assert len(said) == 2
    assert said[0].startswith(f"rank 3 on {host_name()}: {disk}/rank-3.jsonl: cannot be written (the disk is full); ")
    assert said[1] == records[-2]["message"]


def test_where_nobody_sees_it_the_trouble_waits_to_be_told_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()  # which cannot be a directory
    recorder = Recorder(Journal(tmp_path / "journal", 1))
    for step in (1, 2):
        recorder.record(Noticed(step=step, message="m"))
    assert recorder.has_troubles
    (said,) = recorder.pop_troubles()
    assert said.startswith(f"rank 1 on {host_name()}: {tmp_path}/journal/rank-1.jsonl: cannot be written (")
    assert not recorder.has_troubles
    recorder.close()


def test_how_far_a_stage_is_does_not_go_into_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.working("evaluating", 1, 2)
    journal.close()
    assert (tmp_path / "rank-0.jsonl").read_bytes() == b""
