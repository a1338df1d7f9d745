"""The journal, a run's event log: an append-only file of records for each rank, one JSON object a line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tandem.layout import journal_name
from tandem.monitor.records import Record
from tandem.monitor.views import View


class Journal(View):
    """A view that appends each record, with the time, to a rank's file."""

    def __init__(self, directory: Path, rank: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / journal_name(rank)
        torn = _is_torn(path)
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


def _is_torn(path: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


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
