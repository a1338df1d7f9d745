"""Downloads files over http and https: each whole, checked and under its name, or not there at all."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Semaphore, Thread
from urllib.parse import unquote, urlsplit

import urllib3

from tandem.corpus.fetch import http_session as http
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.storage import explained_write_errors, fsync_path, waiting_lock, write_whole

# Read from the network and the disk in pieces that are cheap to handle and quick to report.
_PIECE = 1 << 18
# Seconds that an interrupt waits for threads to close their files; one that is still connecting has none open.
_CLOSING = 1.0


@dataclass(frozen=True)
class RemoteFile:
    """A file to have: its name here, the urls it may come from in order of preference, and what is known of it."""

    name: str
    urls: tuple[str, ...]
    bytes: int | None = None
    sha256: str | None = None
    folder: str = ""
    """Directory to keep it in, below the one for all files."""


def fetch(
    files: Sequence[RemoteFile],
    directory: Path,
    progress: ProgressCallback = no_progress,
    policy: http.RetryPolicy | None = None,
) -> dict[str, Path]:
    """Have all files in a directory, several fetched at once; what is there and right is not fetched again.

    What an interrupt, a fault or a killed process leaves is continued the next time. A file that cannot be had does
    not keep the others from being finished.
    """
    for file in files:
        if Path(file.name).name != file.name or file.name in ("", ".", ".."):
            raise TandemError(f"{file.name!r}: not a file name; give a name without directories")
    with explained_write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    session = http.HttpSession(policy or http.RetryPolicy(), progress)
    downloads = [_Download(file, directory / file.folder, session) for file in files]
    _run_all(downloads, session)
    return {download.file.name: download.place for download in downloads}


def find_offline(
    files: Sequence[RemoteFile], offline: Path, progress: ProgressCallback = no_progress
) -> dict[str, Path]:
    """Find files that the user has already, under their own names or those in their urls, and check them.

    They are used where they are and never written to. All that is missing or wrong is named at once.
    """
    if not offline.is_dir():
        raise TandemError(f"{offline}: no such directory; give the one that holds the archives to --offline")
    found: dict[str, Path] = {}
    faults: list[str] = []
    for file in files:
        names = dict.fromkeys([file.name, *(unquote(urlsplit(url).path.rpartition("/")[2]) for url in file.urls)])
        path = next((offline / name for name in names if name and (offline / name).is_file()), None)
        if path is None:
            faults.append(f"{' or '.join(names)} is missing (from {' or '.join(file.urls) or 'no known url'})")
            continue
        try:
            fault = find_fault(path, file.bytes, file.sha256, file.name, progress)
        except OSError as error:
            fault = f"cannot be read ({error.strerror})"
        if fault:
            faults.append(f"{path.name} {fault}")
        found[file.name] = path
    if faults:
        raise TandemError(f"{offline}: {'; '.join(faults)}; put the right files there, or leave out --offline")
    return found


def find_fault(
    path: Path, expected: int | None, sha256: str | None, name: str, progress: ProgressCallback = no_progress
) -> str | None:
    """What is wrong with a file, which people know by that name, if its size or checksum is known."""
    size = path.stat().st_size
    if size != expected and (expected is not None or size == 0):
        return f"has {size:,} bytes" + ("" if expected is None else f", not {expected:,}")
    if sha256 is None:
        return None
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            progress(f"check {name}", file.tell(), size, "B")
    return None if digest.hexdigest() == sha256 else f"has the sha256 {digest.hexdigest()}, not {sha256}"


def _run_all(downloads: Sequence[_Download], session: http.HttpSession) -> None:
    """Obtain all files, a few at a time; one error tells everything that went wrong."""
    slots, ended = Semaphore(http.AT_ONCE), Semaphore(0)
    faults: dict[_Download, Exception] = {}

    def work(download: _Download) -> None:
        try:
            with slots:
                session.check_cancelled()
                download.obtain()
        except http.CancelledError:
            pass
        except Exception as fault:
            faults[download] = fault
        finally:
            ended.release()

    # Daemons, or an interrupt would wait for a server that does not answer.
    threads = [Thread(target=work, args=(download,), daemon=True, name="download") for download in downloads]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            ended.acquire()  # not join: Python 3.11 takes a thread for ended when an interrupt comes while it is joined
    except BaseException:  # an interrupt
        session.cancel()
        until = time.monotonic() + _CLOSING
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

    def __init__(self, file: RemoteFile, directory: Path, session: http.HttpSession) -> None:
        self.file = file
        self.place = directory / file.name
        self._part = directory / f"{file.name}.part"
        self._note = directory / f"{file.name}.part.json"
        """The url that the part came from, and the version of the file that it has there."""
        self._session = session
        self._liars: set[str] = set()
        """Urls that answered a request for a part with another part."""

    def obtain(self) -> None:
        with explained_write_errors(self.place):
            # Looked at before the lock is taken: a directory with all files may be read-only.
            if self._is_here():
                return
            self.place.parent.mkdir(parents=True, exist_ok=True)
            lock = self.place.with_name(f"{self.file.name}.lock")
            with waiting_lock(lock, self._show_waiting, self._session.pause):
                if not self._is_here():
                    self._fetch()

    def _is_here(self) -> bool:
        return self.place.is_file() and self._fault(self.place) is None

    def _fault(self, path: Path) -> str | None:
        return find_fault(path, self.file.bytes, self.file.sha256, self.file.name, self._session.report)

    def _show_waiting(self, over: bool) -> None:
        """Show how far the process is that fetches this file already."""
        size = self._size()
        if over:
            size = self.file.bytes or size
        self._session.report(f"wait for {self.file.name}", size, size if over else self.file.bytes, "B")

    def _fetch(self) -> None:
        """Go round the urls until one has given the file or none is left that might."""
        policy, stage = self._session.policy, f"retry {self.file.name}"
        urls = list(self.file.urls)
        why = dict.fromkeys(urls, "was not asked")
        tries, furthest = 0, self._size()
        while urls and tries < policy.tries:
            wait = self._try_each(urls, why)
            if wait is None:
                if tries:
                    self._session.report(stage, policy.tries, policy.tries)
                return
            tries += 1
            if self._size() >= furthest + policy.enough:
                furthest, tries = self._size(), 1
            if urls and tries < policy.tries:
                self._session.report(stage, tries, policy.tries)
                back_off = policy.first_pause * 2 ** (tries - 1) * random.uniform(0.5, 1.0)
                self._session.pause(min(max(back_off, wait), policy.longest_pause))
        reasons = "; ".join(f"{url} {reason}" for url, reason in why.items()) or "no url is known"
        kept = f"; {self._size() / 1e6:.1f} MB are kept and continued next time" if self._size() else ""
        raise TandemError(
            f"{self.file.name}: could not be fetched: {reasons}{kept}; "
            f"try again later, or get the file another way and give its directory with --offline DIR"
        )

    def _try_each(self, urls: list[str], why: dict[str, str]) -> float | None:
        """Try each url in turn; None once the file is there, else the seconds that a server asked to wait.

        Notes why a url failed, and takes it off the list if that will not change.
        """
        wait = 0.0
        for url in tuple(urls):
            try:
                self._finish(whole=self._transfer(url))
            except http.UrlError as error:
                why[url] = str(error)
                wait = max(wait, error.wait)
                if error.lasting:
                    urls.remove(url)
            else:
                return None
        return wait

    def _transfer(self, url: str) -> bool:
        """Bring what is missing from one url to the disk; True if that was all of the file."""
        start = self._size()
        if self.file.sha256 and self.file.bytes is not None and start >= self.file.bytes:
            return False  # a process ended before it was checked; _finish finds out whether it is right
        known = self._known_version(url)
        if url in self._liars or (self.file.sha256 is None and known is None):
            start = 0
        with self._session.get(url, start) as response:
            if response.status == 416 and start:
                # Nothing follows the part that is here: it is the whole file, which its checksum tells, or of no use.
                if self.file.sha256 is None:
                    self._discard()
                    raise http.UrlError("has nothing that follows the part that is here (HTTP 416)")
                return False
            start, total = self._begin(url, response, start, known)
            self._receive(url, response, start, total)
        return start == 0

    def _begin(
        self, url: str, response: urllib3.BaseHTTPResponse, start: int, known: str | None
    ) -> tuple[int, int | None]:
        """Where an answer's bytes belong and how large the file is, if the answer can be believed."""
        http.check_answer(response)
        total = http.content_length(response)
        if response.status == 206:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if span is None or not start or int(span[1]) != start:
                self._liars.add(url)
                raise http.UrlError("sends another part of the file than it was asked for")
            if self.file.sha256 is None and http.file_version(response) != known:
                self._discard()
                raise http.UrlError("has changed the file since the first part was fetched")
            total = int(span[2])
        else:
            start = 0
        expected = self.file.bytes
        if expected is not None and total is not None and total != expected:
            raise http.UrlError(f"has a file of {total:,} bytes, not {expected:,}", lasting=True)
        if expected is None and total is None and self.file.sha256 is None and not http.is_chunked(response):
            raise http.UrlError("does not say how long the file is, so its end could be missing", lasting=True)
        return start, expected if total is None else total

    def _receive(self, url: str, response: urllib3.BaseHTTPResponse, start: int, total: int | None) -> None:
        done, stage = start, f"download {self.file.name}"
        with self._part.open("r+b" if start else "wb") as file:
            file.seek(start)
            if not start:
                write_whole(self._note, json.dumps({"url": url, "version": http.file_version(response)}).encode())
            self._session.report(stage, done, total, "B")
            while piece := response.read1(_PIECE):
                if not done and http.is_page(piece):
                    self._discard()
                    raise http.UrlError("sends an HTML page instead of the file", lasting=True)
                if total is not None and done + len(piece) > total:
                    self._discard()
                    raise http.UrlError(f"sends more than the {total:,} bytes of the file", lasting=True)
                file.write(piece)
                file.flush()  # a process that is killed leaves what it has
                done += len(piece)
                self._session.report(stage, done, total, "B")
        self._session.report(stage, done, total or done, "B")
        if total is not None and done < total:
            raise http.UrlError(f"ended after {done:,} of {total:,} bytes")

    def _finish(self, whole: bool) -> None:
        """Check the part and give it its name; one that is wrong is of no use to anybody."""
        fault = self._fault(self._part)
        if fault:
            self._discard()
            # Pieces of several answers may not belong together; all of one answer says what this url has.
            raise http.UrlError(f"gave a file that {fault}", lasting=whole)
        fsync_path(self._part)  # or a power cut could leave the name without the content
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
