"""A real web server on this machine that misbehaves as it is told, path by path, and remembers what it was asked."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

import pytest


class Request(BaseHTTPRequestHandler):
    """One request, and the means to answer it well or badly."""

    web: Web

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):  # the other side has had enough
            super().handle_one_request()

    def do_GET(self) -> None:
        script = self.web.scripts.get(self.path, [status(404)])
        self.web.asked.append((self.path, self.headers["Range"]))
        self.close_connection = True
        (script.pop(0) if len(script) > 1 else script[0])(self)

    @property
    def start(self) -> int:
        """The byte from which on the file is asked for."""
        return int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))

    def head(self, code: int, **headers: object) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """The output of tests stays clean."""


# What is done with one request.
Answer = Callable[[Request], None]


class Web:
    """Answers the first request for a path with the first answer of its script, and so on; the last one stays."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.scripts: dict[str, list[Answer]] = {}
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range header of every request."""
        self.closing = Event()
        """Ends whoever stalls."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Request,), {"web": self}))
        self._scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"

    def __enter__(self) -> Web:
        # Looks so often whether it is to close; the default would cost each test half a second.
        Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str, *answers: Answer) -> str:
        """The address of a path, which answers so."""
        if answers:
            self.scripts[path] = list(answers)
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{path}"

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [path for path, _ in self.asked]

    def ranges(self, path: str) -> list[str | None]:
        """The Range headers that a path was asked with."""
        return [asked for where, asked in self.asked if where == path]


def served() -> Iterator[Web]:
    """A server that is asked directly, whatever proxy there is; make it a fixture: `web = pytest.fixture(served)`."""
    with pytest.MonkeyPatch.context() as environment, Web() as web:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            environment.delenv(name, raising=False)
            environment.delenv(name.upper(), raising=False)
        yield web


def whole(content: bytes, drop_after: int | None = None, **headers: object) -> Answer:
    """An honest server; with `drop_after` it closes the connection after so many bytes of its answer."""

    def answer(request: Request) -> None:
        if request.start and request.start >= len(content):
            request.head(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
            return
        body = content[request.start :]
        if request.start:
            span = f"bytes {request.start}-{len(content) - 1}/{len(content)}"
            request.head(206, Content_Range=span, Content_Length=len(body), **headers)
        else:
            request.head(200, Content_Length=len(body), **headers)
        request.wfile.write(body[:drop_after])

    return answer


def without_ranges(content: bytes, drop_after: int | None = None) -> Answer:
    """A server that gives all of the file to whoever asks for a part."""

    def answer(request: Request) -> None:
        request.head(200, Content_Length=len(content))
        request.wfile.write(content[:drop_after])

    return answer


def wrong_start(content: bytes) -> Answer:
    """A server that answers a request for a part with a part that begins elsewhere, and says so."""

    def answer(request: Request) -> None:
        if not request.start:
            return whole(content)(request)
        begin = request.start // 2
        request.head(206, Content_Range=f"bytes {begin}-{len(content) - 1}/{len(content)}")
        request.wfile.write(content[begin:])
        return None

    return answer


def wrong_bytes(content: bytes) -> Answer:
    """A server that says it continues where it was asked to, and sends the beginning again."""

    def answer(request: Request) -> None:
        if not request.start:
            return whole(content)(request)
        body = content[: len(content) - request.start]
        span = f"bytes {request.start}-{len(content) - 1}/{len(content)}"
        request.head(206, Content_Range=span, Content_Length=len(body))
        request.wfile.write(body)
        return None

    return answer


def status(code: int, **headers: object) -> Answer:
    def answer(request: Request) -> None:
        request.head(code, Content_Length=0, **headers)

    return answer


def page(kind: str = "text/html; charset=utf-8", text: bytes = b"<!DOCTYPE html><h1>Please log in</h1>") -> Answer:
    """An HTML page with status 200."""

    def answer(request: Request) -> None:
        request.head(200, Content_Type=kind, Content_Length=len(text))
        request.wfile.write(text)

    return answer


def stalled(content: bytes, after: int) -> Answer:
    """A server that falls silent after so many bytes."""

    def answer(request: Request) -> None:
        whole(content, drop_after=after)(request)
        request.wfile.flush()
        request.web.closing.wait()

    return answer


def chunked(*pieces: bytes, complete: bool = True) -> Answer:
    """A server that does not say how long the file is, but where it ends; or not even that."""

    def answer(request: Request) -> None:
        request.protocol_version = "HTTP/1.1"
        request.head(200, Transfer_Encoding="chunked")
        for piece in (*pieces, b"") if complete else pieces:
            request.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    return answer


def endless(piece: bytes) -> Answer:
    """A server that never stops, whatever was asked for."""

    def answer(request: Request) -> None:
        request.protocol_version = "HTTP/1.1"
        request.head(200, Transfer_Encoding="chunked")
        while not request.web.closing.is_set():
            request.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    return answer


def unmeasured(content: bytes) -> Answer:
    """A server of the oldest kind: the end of the connection is the end of the file."""

    def answer(request: Request) -> None:
        request.head(200)
        request.wfile.write(content)

    return answer


def reset() -> Answer:
    """A server that tears the connection down."""

    def answer(request: Request) -> None:
        # To linger for no time at all makes closing a reset.
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.connection.close()

    return answer
