"""The journal, a run's event log: an append-only file of records for each rank, one JSON object a line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from tandem.layout import journal_name
from tandem.monitor.network_interfaces import host_name
from tandem.monitor.records import Noticed, Record
from tandem.monitor.views import View, switched_off
from tandem.storage import append, error_in_words


class Journal(View):
    """A view that appends each record, with the time, to a rank's file.

    A disk that does not take a record costs the record, never the training: the journal notes what was lost, says so
    once through `pop_trouble`, tries again with the next record, and writes down how many are missing.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._path = directory / journal_name(rank)
        self._place = f"rank {rank} on {host_name()}: {self._path}"
        self._file: FileIO | None = None
        self._newest = datetime.min.replace(tzinfo=UTC)
        self._torn = False
        """Whether the file may end in the middle of a line."""
        self._lost, self._why = 0, ""
        self._trouble = ""
        with suppress(OSError):
            # A reader may look for the file before there is a record. If it cannot be made, the first record says so.
            self._open()

    def show(self, record: Record) -> None:
        try:
            if self._lost:
                # First of all, so that it stands where the records are missing.
                self._append(Noticed(step=record.step, message=self._account()))
                self._trouble, self._lost = self._account(), 0
            self._append(record)
        except OSError as error:
            self._why = error_in_words(error)
            if not self._lost:
                self._trouble = (
                    f"{self._place}: cannot be written ({self._why}); training goes on, "
                    "and the records of this process are lost until there is room again"
                )
            self._lost += 1
            self.close()

    def pop_trouble(self) -> str:
        trouble, self._trouble = self._trouble, ""
        return trouble

    def close(self) -> None:
        if self._file is not None:
            # Some file systems tell only now that they could not write.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _account(self) -> str:
        records = f"{self._lost:,} record{'s' if self._lost > 1 else ''}"
        return f"{self._place}: {records} could not be written ({self._why}) and are lost"

    def _append(self, record: Record) -> None:
        file = self._file or self._open()
        # A clock that is set back stands still here until it has caught up: no record comes before an earlier one.
        self._newest = max(self._newest, datetime.now(UTC))
        line = {"time": self._newest.isoformat(timespec="milliseconds"), **record.as_dict()}
        # A file name that is not UTF-8 arrives as lone surrogates; with a backslash they are JSON, too.
        text = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
        # A killed process, or a full disk, may have left half a line: end it, so that this record starts its own.
        text = b"\n" + text if self._torn else text
        self._torn = True
        append(file, text)
        self._torn = False

    def _open(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._torn = _is_torn(self._path)
        # Without a buffer: what a full disk has not taken would be tried again, out of its turn.
        self._file = self._path.open("ab", buffering=0)
        return self._file


def _is_torn(path: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class Recorder:
    """Hands each record to the journal and to every view this process has.

    A view that raises is switched off, with a notice. The journal is not: it goes on as soon as its disk does.
    """

    def __init__(self, journal: Journal, views: Iterable[View] = ()) -> None:
        self._journal, self._views = journal, list(views)
        self._troubles: list[str] = []
        self._step = 0
        # The host's samples come from a thread of their own, and must not fall into the middle of another record.
        # Reentrant, because the notice of a view that failed is a record, too.
        self._lock = threading.RLock()

    def record(self, record: Record) -> None:
        with self._lock:
            self._step = record.step
            self._journal.show(record)
            self._tell_views(lambda view: view.show(record))
            if trouble := self._journal.pop_trouble():
                self._tell_trouble(trouble)
            for trouble in filter(None, [view.pop_trouble() for view in self._views]):
                self.record(Noticed(step=record.step, message=trouble))

    def relay(self, message: str) -> None:
        """Have another process show this, if this one has no views."""
        with self._lock:
            if not self._views:
                self._troubles.append(message)

    def pop_troubles(self) -> list[str]:
        """What went wrong in this process and could not be shown here, for want of views."""
        with self._lock:
            troubles, self._troubles = self._troubles, []
        return troubles

    @property
    def has_troubles(self) -> bool:
        return bool(self._troubles)

    def stepped(self, step: int) -> None:
        self._step = step
        self._tell_views(lambda view: view.stepped(step))

    def working(self, stage: str, done: int, total: int) -> None:
        self._tell_views(lambda view: view.working(stage, done, total))

    def close(self) -> None:
        with self._lock:
            # Several that hang are then waited for together, and none is closed late for want of time.
            self._tell_views(lambda view: view.begin_close())
            while self._views:
                view = self._views.pop(0)
                try:
                    view.close()
                    trouble = view.pop_trouble()
                except Exception as error:  # whatever a view of the user's raises
                    trouble = switched_off(_name(view), error)
                # The other views are still open, and the journal: the console comes last.
                if trouble:
                    self.record(Noticed(step=self._step, message=trouble))
            self._journal.close()

    def _tell_trouble(self, message: str) -> None:
        """Show what is wrong with the journal, which cannot record it; without views, another process is to show it."""
        if self._views:
            self._tell_views(lambda view: view.show(Noticed(step=self._step, message=message)))
        else:
            self.relay(message)

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
                self.record(Noticed(step=self._step, message=switched_off(_name(view), why)))


def _name(view: View) -> str:
    return f"{type(view).__module__}:{type(view).__qualname__}"
