"""Following journals: every whole line told once, whatever happens to the files meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tandem.monitor.journal import Journal
from tandem.monitor.journal_reader import read_record
from tandem.monitor.records import Noticed
from tandem.monitor.watch.follow import JournalFollower


def line(second: int, message: str, kind: str = "noticed") -> bytes:
    moment = f"2026-01-01T00:00:{second:02d}.000+00:00"
    return (
        json.dumps({"time": moment, "kind": kind, "step": 1, "message": message}, ensure_ascii=False).encode() + b"\n"
    )


def append(directory: Path, rank: int, content: bytes) -> None:
    directory.mkdir(exist_ok=True)
    with (directory / f"rank-{rank}.jsonl").open("ab") as file:
        file.write(content)


def told(followed: JournalFollower) -> list[tuple[int, Any]]:
    """Rank and message of every new line that is whole."""
    return [(rank, json.loads(line)["message"]) for rank, line in followed.new_lines() if line.endswith(b'"}\n')]


def test_each_look_tells_what_is_new(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path)
    assert told(followed) == []
    append(tmp_path, 0, line(1, "a") + line(2, "b"))
    assert told(followed) == [(0, "a"), (0, "b")]
    assert told(followed) == []
    append(tmp_path, 0, line(3, "c"))
    assert told(followed) == [(0, "c")]


def test_what_a_journal_writes_is_what_is_told(tmp_path: Path) -> None:
    followed, journal = JournalFollower(tmp_path), Journal(tmp_path, 3)
    journal.show(Noticed(step=7, message="größer\u2028 as ever"))
    ((rank, written),) = followed.new_lines()
    journal.close()
    assert (rank, read_record(written)) == (3, Noticed(step=7, message="größer\u2028 as ever"))


def test_a_torn_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    followed, whole = JournalFollower(tmp_path), line(1, "größer")
    cut = whole.index("ö".encode()) + 1
    append(tmp_path, 0, whole[:cut])
    assert told(followed) == []
    append(tmp_path, 0, whole[cut:-1])
    assert told(followed) == [], "without its end it may go on"
    append(tmp_path, 0, b"\n" + line(2, "next"))
    assert told(followed) == [(0, "größer"), (0, "next")]


def test_what_stays_torn_is_passed_over(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path)
    append(tmp_path, 0, line(1, "a") + b'{"time": "20\n\xff\x00\n\n[1]\n7\n' + line(2, "b"))
    assert told(followed) == [(0, "a"), (0, "b")]


def test_a_directory_and_files_that_come_later(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    followed = JournalFollower(directory)
    assert told(followed) == []
    append(directory, 10, line(1, "ten"))
    assert told(followed) == [(10, "ten")]
    append(directory, 2, line(2, "two"))
    (directory / "rank-x.jsonl").write_bytes(line(3, "not a journal"))
    (directory / "rank-1.jsonl.gz").write_bytes(line(3, "nor this"))
    assert told(followed) == [(2, "two")]


def test_ranks_are_told_by_time(tmp_path: Path) -> None:
    append(tmp_path, 0, line(1, "a") + line(4, "d"))
    append(tmp_path, 1, line(2, "b") + line(3, "c") + line(5, "e"))
    assert told(JournalFollower(tmp_path)) == [(0, "a"), (1, "b"), (1, "c"), (0, "d"), (1, "e")]


def test_a_cut_file_is_read_anew(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path)
    append(tmp_path, 0, line(1, "a") + line(2, "b"))
    assert len(told(followed)) == 2
    (tmp_path / "rank-0.jsonl").write_bytes(line(3, "c"))
    assert told(followed) == [(0, "c")]


def test_a_replaced_file_is_read_anew_though_it_is_longer(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path)
    append(tmp_path, 0, line(1, "a"))
    assert told(followed) == [(0, "a")]
    (tmp_path / "rank-0.jsonl").write_bytes(line(2, "b") + line(3, "c"))
    assert told(followed) == [(0, "b"), (0, "c")]


def test_a_file_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path)
    append(tmp_path, 0, line(1, "a"))
    assert told(followed) == [(0, "a")]
    (tmp_path / "rank-0.jsonl").unlink()
    assert told(followed) == []
    append(tmp_path, 0, line(1, "a"))
    assert told(followed) == [(0, "a")]


def test_of_some_kinds_only_the_newest(tmp_path: Path) -> None:
    followed = JournalFollower(tmp_path, newest_only=["sampled"])
    for rank in (0, 1):
        append(tmp_path, rank, line(1, "old", "sampled") + line(2, f"note {rank}") + line(3, f"new {rank}", "sampled"))
    assert sorted(told(followed)) == [(0, "new 0"), (0, "note 0"), (1, "new 1"), (1, "note 1")]
    append(tmp_path, 1, line(4, "newer", "sampled"))
    assert told(followed) == [(1, "newer")]


def test_a_word_in_a_text_is_not_its_kind(tmp_path: Path) -> None:
    append(tmp_path, 0, line(1, '"kind": "sampled"') + line(2, '{"time": "t", "kind": "sampled"'))
    assert len(told(JournalFollower(tmp_path, newest_only=["sampled"]))) == 2


def test_what_is_not_a_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "rank-1.jsonl").mkdir()
    os.mkfifo(tmp_path / "rank-2.jsonl")
    append(tmp_path, 0, line(1, "a"))
    followed = JournalFollower(tmp_path)
    assert told(followed) == [(0, "a")]
    (tmp_path / "rank-1.jsonl").rmdir()
    append(tmp_path, 1, line(2, "b"))
    assert told(followed) == [(1, "b")]
    (tmp_path / "rank-1.jsonl").unlink()
    (tmp_path / "rank-1.jsonl").mkdir()
    assert told(followed) == [], "it was a file before"
