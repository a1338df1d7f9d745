"""A proxy before the server that holds answers until it is told, changes them, or is not there at all."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Change = Callable[[dict[str, Any]], dict[str, Any]]
LOCALHOST = "127.0.0.1"


@dataclass
class Asked:
    """A request that passed."""

    path: str
    fields: dict[str, Any]


@dataclass
class Hold:
    """Answers that wait after so many lines of their body."""

    after_lines: int
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when an answer waits."""
    released: threading.Event = field(default_factory=threading.Event)


class HoldingProxy:
    """Passes requests on to a server, one connection for each."""

    def __init__(self, server: str) -> None:
        self.server = server
        parts = urlsplit(server)
        self.upstream = (str(parts.hostname), int(parts.port or 80))
        self.asked: list[Asked] = []
        self.holds: dict[str, Hold] = {}
        self.changes: dict[str, Change] = {}
        self._open: set[socket.socket] = set()
        self._listener: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"http://{LOCALHOST}:{self._port}/"

    def texts(self, path: str) -> list[str]:
        """The texts that a path was asked to translate."""
        return [asked.fields["q"] for asked in self.asked if asked.path == path]

    @contextlib.contextmanager
    def holding(self, path: str, after_lines: int = 0) -> Iterator[Hold]:
        """Answers of a path wait until the end of the block, or until they are released."""
        hold = self.holds[path] = Hold(after_lines)
        try:
            yield hold
        finally:
            hold.released.set()
            del self.holds[path]

    def start(self) -> None:
        """Listen, at the same port as before."""
        handler = type("Handler", (_Passing,), {"proxy": self})
        self._listener = ThreadingHTTPServer((LOCALHOST, self._port), handler)
        self._port = self._listener.server_address[1]
        threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Be gone: nobody listens, and whatever was under way breaks off."""
        assert self._listener is not None
        self._listener.shutdown()
        self._listener.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Passing(BaseHTTPRequestHandler):
    proxy: HoldingProxy

    def setup(self) -> None:
        super().setup()
        self.proxy._open.add(self.connection)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        self.proxy._open.discard(self.connection)

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.proxy.asked.append(Asked(path, json.loads(body) if body else {}))
        upstream = http.client.HTTPConnection(*self.proxy.upstream)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        try:
            upstream.request(self.command, self.path, body, headers | {"Connection": "close"})
            self._answer(path, upstream.getresponse())
        except OSError:  # one of the two has gone
            self.close_connection = True
        finally:
            upstream.close()

    def _answer(self, path: str, answer: http.client.HTTPResponse) -> None:
        hold, change = self.proxy.holds.get(path), self.proxy.changes.get(path)
        if hold is not None and hold.after_lines == 0:
            _wait(hold)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        for number, line in enumerate(answer):
            if hold is not None and number == hold.after_lines > 0:
                _wait(hold)
            self.wfile.write(json.dumps(change(json.loads(line))).encode() + b"\n" if change else line)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


def _wait(hold: Hold) -> None:
    hold.reached.set()
    hold.released.wait()


def counts(asked: list[Asked]) -> dict[str, int]:
    """How often each path was asked."""
    found: dict[str, int] = defaultdict(int)
    for one in asked:
        found[one.path] += 1
    return dict(found)
