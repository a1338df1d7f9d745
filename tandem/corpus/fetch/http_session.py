"""HTTP requests for files: proxies, redirects, retries, cancellation, and plain words for what a server did instead."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from tandem import __version__
from tandem.corpus.progress import ProgressCallback

# More at once do not make a line faster, and servers of universities refuse the greedy.
AT_ONCE = 4
# A file behind a content network has one or two; more is a circle.
_REDIRECTS = 5
# Faults of the moment, by the numbers of HTTP: worth another try at the same address.
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_HTML = ("text/html", "application/xhtml+xml")
_HTML_BEGINS = (b"<!doctype html", b"<html")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a server, and how often to come back."""

    connect: float = 15.0
    """Seconds until a connection must stand."""
    stall: float = 30.0
    tries: int = 5
    """Rounds through all urls without getting further; with the pauses between, a quarter of a minute."""
    first_pause: float = 1.0
    """Seconds after the first round; each pause is twice as long as the one before."""
    longest_pause: float = 60.0
    """Bounds what a server may ask for with Retry-After, too."""
    enough: int = 1 << 20
    """A round that brought so many bytes does not count: long files may be interrupted often."""
    pause: Callable[[Event, float], object] = Event.wait
    """Waits so many seconds, or until the event."""


class UrlError(Exception):
    """One url did not give the file; `lasting`: it will not do so later either."""

    def __init__(self, why: str, *, lasting: bool = False, wait: float = 0.0) -> None:
        super().__init__(why)
        self.lasting = lasting
        self.wait = wait


class CancelledError(Exception):
    """All downloads of the session were cancelled."""


class HttpSession:
    """HTTP session shared by parallel downloads: connection pool, progress callback, cancellation."""

    def __init__(self, policy: RetryPolicy, progress: ProgressCallback) -> None:
        self.policy = policy
        self._progress = progress
        self._reporting = Lock()
        self._cancelled = Event()
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self._timeout = urllib3.Timeout(connect=policy.connect, read=policy.stall)
        self._direct = urllib3.PoolManager(maxsize=AT_ONCE)

    def report(self, stage: str, done: int, total: int | None, unit: str = "") -> None:
        """Call the progress callback, from one thread at a time; raises CancelledError after a cancellation."""
        with self._reporting:
            self.check_cancelled()
            self._progress(stage, done, total, unit)

    def pause(self, seconds: float) -> None:
        self.policy.pause(self._cancelled, seconds)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError

    def cancel(self) -> None:
        self._cancelled.set()
        for response in tuple(self._open):
            # It may have come to its end in this very moment.
            with suppress(ValueError, RuntimeError, OSError):
                response.shutdown()

    @contextmanager
    def get(self, url: str, start: int) -> Iterator[urllib3.BaseHTTPResponse]:
        """The answer to a request for the bytes from `start` on, its body not yet read.

        Trouble on the way, then or while it is read, is a failure of the url.
        """
        headers = {"Accept-Encoding": "identity", "User-Agent": f"tandem/{__version__}"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = self._follow(url, headers)
            try:
                self._open.add(response)
                self.check_cancelled()  # after adding it: `cancel` has either set the event or sees it
                yield response
            finally:
                self._open.discard(response)
                response.close()
        except HTTPError as error:
            self.check_cancelled()
            raise _explained(error, self.policy) from error

    def _follow(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        for _ in range(_REDIRECTS + 1):
            response = self._manager(url).request(
                "GET",
                url,
                headers=headers,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            target = response.get_redirect_location()
            if not target:
                return response
            response.close()
            before, url = url, urljoin(url, target)
            if urlsplit(before).scheme == "https" and urlsplit(url).scheme != "https":
                raise UrlError(f"sends on to {url}, which is not https", lasting=True)
        raise UrlError(f"sends on to another address more than {_REDIRECTS} times", lasting=True)

    def _manager(self, url: str) -> urllib3.PoolManager:
        """Directly, or through the proxy that the environment names."""
        parts = urlsplit(url)
        proxy = getproxies().get(parts.scheme)
        if not proxy or not parts.hostname or proxy_bypass(parts.hostname):
            return self._direct
        return urllib3.ProxyManager(proxy if "://" in proxy else f"http://{proxy}")


def check_answer(response: urllib3.BaseHTTPResponse) -> None:
    """Refuse an answer that is not a file or a part of one."""
    if response.status not in (200, 206):
        wait = 0.0
        with suppress(InvalidHeader):
            wait = urllib3.Retry().get_retry_after(response) or 0.0
        what = f"answers HTTP {response.status} {response.reason or ''}".rstrip()
        raise UrlError(what, lasting=response.status not in _TEMPORARY, wait=wait)
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in _HTML:
        raise UrlError("sends an HTML page instead of the file", lasting=True)


def is_page(beginning: bytes) -> bool:
    """Whether a file begins as an HTML page does, whatever the server calls it."""
    return beginning.lstrip()[: len(_HTML_BEGINS[0])].lower().startswith(_HTML_BEGINS)


def content_length(response: urllib3.BaseHTTPResponse) -> int | None:
    value = response.headers.get("Content-Length", "")
    return int(value) if value.isdecimal() and not is_chunked(response) else None


def is_chunked(response: urllib3.BaseHTTPResponse) -> bool:
    return "chunked" in response.headers.get("Transfer-Encoding", "").lower()


def file_version(response: urllib3.BaseHTTPResponse) -> str | None:
    """What tells two versions of a file apart byte for byte; a weak tag does not."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _explained(error: HTTPError, policy: RetryPolicy) -> UrlError:
    """An error of urllib3 in a few plain words."""
    match error:
        case NameResolutionError():
            return UrlError("is at an unknown host, or there is no network")
        case NewConnectionError():
            return UrlError(f"cannot be reached ({_system_word(error)})")
        case ConnectTimeoutError():
            return UrlError(f"cannot be reached within {policy.connect:g} s")
        case ReadTimeoutError():
            return UrlError(f"was silent for {policy.stall:g} s")
        case SSLError() if isinstance(error.args[0], ssl.SSLCertVerificationError):
            trouble = error.args[0].verify_message
            return UrlError(f"has a certificate that cannot be trusted ({trouble})", lasting=True)
        case LocationValueError():
            return UrlError(f"is no url to fetch from ({error})", lasting=True)
    return UrlError(f"broke off ({_system_word(error)})")


def _system_word(error: BaseException) -> str:
    """The system's own word for what is at the bottom of an error, or the error's."""
    bottom: BaseException = error
    while bottom.__cause__ or bottom.__context__:
        bottom = bottom.__cause__ or bottom.__context__ or bottom
    return bottom.strerror if isinstance(bottom, OSError) and bottom.strerror else str(bottom)
