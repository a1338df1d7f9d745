"""The journal: each rank's own append-only file of records, one JSON object a line. The only source of truth."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from tandem.monitor.records import Record

# A record begins with its time and its kind, so many bytes at most.
KIND_WITHIN = 80


class View:
    """Anything that shows records to somebody."""

    def show(self, record: Record) -> None:
        """Show one record."""

    def stepped(self, step: int) -> None:
        """Show that a step was taken; of interest only at that moment, so most views do not."""

    def working(self, stage: str, done: int, total: int) -> None:
        """Show how far a long stage is; of interest only while it lasts."""

    def close(self) -> None:
        """Finish; nothing is shown afterwards."""


class Journal(View):
    """A view that appends each record, with the time, to a rank's file."""

    def __init__(self, directory: Path, rank: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"rank-{rank}.jsonl"
        torn = path.exists() and path.read_bytes()[-1:] not in (b"\n", b"")
        # A file name that is not UTF-8 arrives as lone surrogates; with a backslash they are JSON, too.
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        if torn:
            # A killed process may have left half a line: end it, so that the next record starts its own.
            self._file.write("\n")

    def show(self, record: Record) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **record.as_dict()}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Recorder:
    """Hands each record to the journal and to every view this process has."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        # The host's samples come from a thread of their own, and must not fall into the middle of another record.
        self._lock = threading.Lock()

    def record(self, record: Record) -> None:
        with self._lock:
            for view in self._views:
                view.show(record)

    def stepped(self, step: int) -> None:
        for view in self._views:
            view.stepped(step)

    def working(self, stage: str, done: int, total: int) -> None:
        for view in self._views:
            view.working(stage, done, total)

    def close(self) -> None:
        for view in self._views:
            view.close()


def read_journal(path: Path, without: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The records of one rank, oldest first; a torn line, left by a killed process, is passed over.

    Kinds that are not wanted are told by the beginning of their lines, which costs next to nothing.
    """
    unwanted = tuple(f'"kind": "{kind}"'.encode() for kind in without)
    with path.open("rb") as lines:
        for line in lines:
            if unwanted and any(mark in line[:KIND_WITHIN] for mark in unwanted):
                continue
            record = parse_line(line)
            if record is not None:
                yield record


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The record on a line of a journal; None if it is torn."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        # What is not finite is no JSON to orjson, which is four times as fast; and a torn line is none to anybody.
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return record if isinstance(record, dict) and "kind" in record else None
