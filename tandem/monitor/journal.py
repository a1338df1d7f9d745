"""The journal, a run's event log: an append-only file of records for each rank, one JSON object a line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tandem.layout import journal_name
from tandem.monitor.records import Noticed, Record
from tandem.monitor.views import View, switched_off


class Journal(View):
    """A view that appends each record, with the time, to a rank's file."""

    def __init__(self, directory: Path, rank: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / journal_name(rank)
        torn = _is_torn(path)
        # A file name that is not UTF-8 arrives as lone surrogates; with a backslash they are JSON, too.
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._newest = datetime.min.replace(tzinfo=UTC)
        if torn:
            # A killed process may have left half a line: end it, so that the next record starts its own.
            self._file.write("\n")

    def show(self, record: Record) -> None:
        # A clock that is set back stands still here until it has caught up: no record comes before an earlier one.
        self._newest = max(self._newest, datetime.now(UTC))
        line = {"time": self._newest.isoformat(timespec="milliseconds"), **record.as_dict()}
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
    """Hands each record to the journal and to every view this process has.

    A view that raises is switched off, with a notice. The journal is not: without it nobody could say what happened.
    """

    def __init__(self, journal: Journal, views: Iterable[View] = ()) -> None:
        self._journal, self._views = journal, list(views)
        self._step = 0
        # The host's samples come from a thread of their own, and must not fall into the middle of another record.
        # Reentrant, because the notice of a view that failed is a record, too.
        self._lock = threading.RLock()

    def record(self, record: Record) -> None:
        with self._lock:
            self._step = record.step
            self._journal.show(record)
            self._tell_views(lambda view: view.show(record))

    def stepped(self, step: int) -> None:
        self._step = step
        self._tell_views(lambda view: view.stepped(step))

    def working(self, stage: str, done: int, total: int) -> None:
        self._tell_views(lambda view: view.working(stage, done, total))

    def close(self) -> None:
        self._tell_views(lambda view: view.close())
        self._journal.close()

    def _tell_views(self, tell: Callable[[View], None]) -> None:
        failed: list[tuple[View, Exception]] = []
        with self._lock:
            for view in self._views:
                try:
                    tell(view)
                except Exception as error:  # whatever a view of the user's raises
                    failed.append((view, error))
            for view, _ in failed:
                self._views.remove(view)
                with suppress(Exception):
                    view.close()
            for view, why in failed:
                name = f"{type(view).__module__}:{type(view).__qualname__}"
                self.record(Noticed(step=self._step, message=switched_off(name, why)))
