"""Brings files here over http and https: each whole, checked and under its name, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit

import urllib3

from tandem.corpus.disk import alone, told_of_disk
from tandem.corpus.progress import Progress, unwatched
from tandem.corpus.servers import (
    AT_ONCE,
    FailureError,
    Line,
    Patience,
    StoppedError,
    check_answer,
    chunked,
    is_page,
    length,
    version,
)
from tandem.errors import TandemError
from tandem.files import write_whole

# Read from the line and the disk in pieces that are cheap to handle and quick to report.
_PIECE = 1 << 18
# An interrupt waits so long for threads to put down what they hold; one that is still connecting holds nothing.
_PUT_DOWN = 1.0


@dataclass(frozen=True)
class Wanted:
    """A file to have: its name here, the urls it may come from in order of preference, and what is known of it."""

    name: str
    urls: tuple[str, ...]
    bytes: int | None = None
    sha256: str | None = None
    folder: str = ""
    """Directory to keep it in, below the one for all files."""


class Known(Protocol):
    """What may be known of a file before it is here."""

    @property
    def bytes(self) -> int | None:
        """Its size."""

    @property
    def sha256(self) -> str | None:
        """Its checksum."""


def fetch(
    wanted: Sequence[Wanted], directory: Path, progress: Progress = unwatched, patience: Patience | None = None
) -> dict[str, Path]:
    """Have all files in a directory, several fetched at once; what is there and right is not fetched again.

    What an interrupt, a fault or a killed process leaves is continued the next time. A file that cannot be had does
    not keep the others from being finished.
    """
    for file in wanted:
        if Path(file.name).name != file.name or file.name in ("", ".", ".."):
            raise TandemError(f"{file.name!r}: not a file name; give a name without directories")
    with told_of_disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
    line = Line(patience or Patience(), progress)
    downloads = [_Download(file, directory, line) for file in wanted]
    _work_off(downloads, line)
    return {download.wanted.name: download.place for download in downloads}


def take_offline(wanted: Sequence[Wanted], offline: Path, progress: Progress = unwatched) -> dict[str, Path]:
    """Find files that the user has already, under their own names or those in their urls, and check them.

    They are used where they are and never written to. All that is missing or wrong is named at once.
    """
    if not offline.is_dir():
        raise TandemError(f"{offline}: no such directory; give the one that holds the archives to --offline")
    found: dict[str, Path] = {}
    faults: list[str] = []
    for file in wanted:
        names = dict.fromkeys([file.name, *(unquote(urlsplit(url).path.rpartition("/")[2]) for url in file.urls)])
        path = next((offline / name for name in names if name and (offline / name).is_file()), None)
        if path is None:
            faults.append(f"{' or '.join(names)} is missing (from {' or '.join(file.urls) or 'no known url'})")
            continue
        try:
            fault = find_fault(path, file, file.name, progress)
        except OSError as error:
            fault = f"cannot be read ({error.strerror})"
        if fault:
            faults.append(f"{path.name} {fault}")
        found[file.name] = path
    if faults:
        raise TandemError(f"{offline}: {'; '.join(faults)}; put the right files there, or leave out --offline")
    return found


def find_fault(path: Path, known: Known, name: str, progress: Progress = unwatched) -> str | None:
    """What is wrong with a file, which people know by that name, as far as anything is known of it."""
    size = path.stat().st_size
    if size != known.bytes and (known.bytes is not None or size == 0):
        return f"has {size:,} bytes" + ("" if known.bytes is None else f", not {known.bytes:,}")
    if known.sha256 is None:
        return None
    stage = f"check {name}"
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            progress(stage, file.tell(), size, "B")
    if digest.hexdigest() != known.sha256:
        return f"has the sha256 {digest.hexdigest()}, not {known.sha256}"
    return None


def _work_off(downloads: Sequence[_Download], line: Line) -> None:
    """Obtain all files in a few threads; one error tells everything that went wrong."""
    waiting: SimpleQueue[_Download] = SimpleQueue()
    for download in downloads:
        waiting.put(download)
    faults: dict[_Download, Exception] = {}
    ended: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        try:
            while True:
                download = waiting.get_nowait()
                try:
                    download.obtain()
                except StoppedError:
                    raise
                except Exception as fault:
                    faults[download] = fault
        except (Empty, StoppedError):
            pass
        finally:
            ended.put(None)

    threads = [Thread(target=work, daemon=True, name="download") for _ in range(min(AT_ONCE, len(downloads)))]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            ended.get()  # not join: Python 3.11 takes a thread for ended when an interrupt comes while it is joined
    except BaseException:  # an interrupt
        line.stop()
        until = time.monotonic() + _PUT_DOWN
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        raise
    for thread in threads:
        thread.join()
    for fault in faults.values():
        if not isinstance(fault, TandemError):
            raise fault
    if faults:
        raise TandemError("; ".join(str(faults[download]) for download in downloads if download in faults))


class _Download:
    """One file on its way to a directory: NAME.part until it is whole and checked, NAME.lock while one works on it."""

    def __init__(self, wanted: Wanted, directory: Path, line: Line) -> None:
        self.wanted = wanted
        directory = directory / wanted.folder
        self.place = directory / wanted.name
        self._part = directory / f"{wanted.name}.part"
        self._note = directory / f"{wanted.name}.part.json"
        self._lock = directory / f"{wanted.name}.lock"
        self._line = line
        self._stage = f"download {wanted.name}"
        self._liars: set[str] = set()
        """Urls that answered a request for a part with another part."""

    def obtain(self) -> None:
        with told_of_disk(self.place):
            # Looked at before the lock is taken: a directory with all files may be read-only.
            if self._is_here():
                return
            self.place.parent.mkdir(parents=True, exist_ok=True)
            with alone(self._lock, self._waiting, self._line.pause):
                if not self._is_here():
                    self._fetch()

    def _is_here(self) -> bool:
        return self.place.is_file() and find_fault(self.place, self.wanted, self.wanted.name, self._line.tell) is None

    def _waiting(self, over: bool) -> None:
        """Show how far the process is that fetches this file already."""
        size = self._size()
        if over:
            size = self.wanted.bytes or size
        self._line.tell(f"wait for {self.wanted.name}", size, size if over else self.wanted.bytes, "B")

    def _fetch(self) -> None:
        """Go round the urls until one has given the file or none is left that might."""
        patience = self._line.patience
        urls = list(self.wanted.urls)
        why = dict.fromkeys(urls, "was not asked")
        stage = f"retry {self.wanted.name}"
        retried = False
        tries = 0
        furthest = self._size()
        while urls and tries < patience.tries:
            wait = self._try_each(urls, why)
            if wait is None:
                if retried:
                    self._line.tell(stage, patience.tries, patience.tries)
                return
            tries += 1
            if self._size() >= furthest + patience.enough:
                furthest, tries = self._size(), 1
            if urls and tries < patience.tries:
                retried = True
                self._line.tell(stage, tries, patience.tries)
                back_off = patience.first_pause * 2 ** (tries - 1) * random.uniform(0.5, 1.0)
                self._line.pause(min(max(back_off, wait), patience.longest_pause))
        reasons = "; ".join(f"{url} {reason}" for url, reason in why.items()) or "no url is known"
        kept = f"; {self._size() / 1e6:.1f} MB are kept and continued next time" if self._size() else ""
        raise TandemError(
            f"{self.wanted.name}: could not be fetched: {reasons}{kept}; "
            f"try again later, or get the file another way and give its directory with --offline DIR"
        )

    def _try_each(self, urls: list[str], why: dict[str, str]) -> float | None:
        """Try each url in turn; None once the file is there, else the seconds that a server asked to wait.

        Notes why a url failed, and takes it off the list if that will not change.
        """
        wait = 0.0
        for url in tuple(urls):
            try:
                whole = self._transfer(url)
                self._finish(whole)
            except FailureError as failure:
                why[url] = str(failure)
                wait = max(wait, failure.wait)
                if failure.lasting:
                    urls.remove(url)
            else:
                return None
        return wait

    def _transfer(self, url: str) -> bool:
        """Bring what is missing from one url to the disk; True if that was all of the file."""
        start = self._size()
        if self.wanted.sha256 and self.wanted.bytes is not None and start >= self.wanted.bytes:
            return False  # a process ended before it was checked; _finish finds out whether it is right
        known = self._known_version(url)
        if url in self._liars or (self.wanted.sha256 is None and known is None):
            start = 0
        with self._line.get(url, start) as response:
            if response.status == 416 and start:
                # Nothing follows the part that is here: it is the whole file, which its checksum tells, or of no use.
                if self.wanted.sha256 is None:
                    self._discard()
                    raise FailureError("has nothing that follows the part that is here (HTTP 416)")
                return False
            start, total = self._begin(url, response, start, known)
            self._receive(url, response, start, total)
        return start == 0

    def _begin(
        self, url: str, response: urllib3.BaseHTTPResponse, start: int, known: str | None
    ) -> tuple[int, int | None]:
        """Where an answer's bytes belong and how large the file is, if the answer can be believed."""
        check_answer(response)
        total = length(response)
        if response.status == 206:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if span is None or not start or int(span[1]) != start:
                self._liars.add(url)
                raise FailureError("sends another part of the file than it was asked for")
            if self.wanted.sha256 is None and version(response) != known:
                self._discard()
                raise FailureError("has changed the file since the first part was fetched")
            total = int(span[2])
        else:
            start = 0
        expected = self.wanted.bytes
        if expected is not None and total is not None and total != expected:
            raise FailureError(f"has a file of {total:,} bytes, not {expected:,}", lasting=True)
        if expected is None and total is None and self.wanted.sha256 is None and not chunked(response):
            raise FailureError("does not say how long the file is, so its end could be missing", lasting=True)
        return start, expected if total is None else total

    def _receive(self, url: str, response: urllib3.BaseHTTPResponse, start: int, total: int | None) -> None:
        done = start
        with self._part.open("r+b" if start else "wb", buffering=0) as file:
            file.seek(start)
            if not start:
                write_whole(self._note, json.dumps({"url": url, "version": version(response)}).encode())
            self._line.tell(self._stage, done, total, "B")
            while piece := response.read1(_PIECE):
                if not done and is_page(piece):
                    self._discard()
                    raise FailureError("sends an HTML page instead of the file", lasting=True)
                if total is not None and done + len(piece) > total:
                    self._discard()
                    raise FailureError(f"sends more than the {total:,} bytes of the file", lasting=True)
                _write(file, piece)
                done += len(piece)
                self._line.tell(self._stage, done, total, "B")
        self._line.tell(self._stage, done, total or done, "B")
        if total is not None and done < total:
            raise FailureError(f"ended after {done:,} of {total:,} bytes")

    def _finish(self, whole: bool) -> None:
        """Check the part and give it its name; one that is wrong is of no use to anybody."""
        fault = find_fault(self._part, self.wanted, self.wanted.name, self._line.tell)
        if fault:
            self._discard()
            # Pieces of several answers may not belong together; all of one answer says what this url has.
            raise FailureError(f"gave a file that {fault}", lasting=whole)
        with self._part.open("rb") as file:
            os.fsync(file.fileno())  # or a power cut could leave the name without the content
        self._part.rename(self.place)
        self._note.unlink(missing_ok=True)

    def _size(self) -> int:
        try:
            return self._part.stat().st_size
        except FileNotFoundError:
            return 0

    def _discard(self) -> None:
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _known_version(self, url: str) -> str | None:
        """Which version of the file the part belongs to, if it came from this url and the server said so."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return str(note["version"]) if note["url"] == url and note["version"] else None
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None


def _write(file: IO[bytes], piece: bytes) -> None:
    """Write all of it; a disk that fills up takes a part at first."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]
