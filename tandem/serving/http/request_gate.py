"""What every request passes before the app sees it: concurrency, size and time limits, and clients that have gone."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tandem.serving.http.libretranslate_api import ApiError
from tandem.serving.serve_settings import ServeSettings
from tandem.serving.server_metrics import ServerMetrics

log = logging.getLogger(__name__)

# Bytes of a body that is too long which are still read, and forgotten: a client that is cut off while it sends does
# not see the answer.
_DRAINED_BYTES = 64 << 20
BUSY = "the server has too much to do; try again later"
SERVER_ERROR = "an error of the server, which it has logged; the request may be sent again"
# Answered also when the server has too much to do.
_ALWAYS = frozenset({"/health", "/metrics"})


class RequestGate:
    """ASGI middleware that bounds what a request costs."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: ServerMetrics, paths: Collection[str]) -> None:
        self._app, self._settings, self._metrics, self._paths = app, settings, metrics, frozenset(paths)
        self._open, self._stopping = 0, False
        self._works: set[asyncio.Future[None]] = set()
        # Bytes that have come of the bodies that have not ended, the oldest first.
        self._arriving: dict[asyncio.Timeout, int] = {}
        self._arriving_bytes = 0

    def give_up(self) -> None:
        """Answer what is still being worked on that the server stops."""
        self._stopping = True
        for work in self._works:
            work.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, answer = time.monotonic(), _Answer(send)
        try:
            body = await self._body(receive)
            if body is not None:
                await self._admit(scope, receive, answer, body)
        except ApiError as error:
            await answer.refuse(error)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.requests.labels(path, answer.status or "gone").inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - begun)

    def _count(self, change: int) -> None:
        self._open += change
        self._metrics.open_requests.set(self._open)

    async def _admit(self, scope: Scope, receive: Receive, answer: _Answer, body: bytes) -> None:
        """Work on a request that is all here: one whose body is still to come takes nobody's place."""
        if self._open >= self._settings.concurrent_requests and scope["path"] not in _ALWAYS:
            raise ApiError(503, BUSY, {"retry-after": "1"})
        self._count(1)
        try:
            await self._work(scope, receive, answer, body)
        finally:
            self._count(-1)

    async def _work(self, scope: Scope, receive: Receive, answer: _Answer, body: bytes) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        work = asyncio.ensure_future(self._app(scope, _replayed(body, gone), answer.send))
        self._works.add(work)
        try:
            await asyncio.wait({work, gone}, timeout=self._settings.time_out, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not gone.done() and answer.status is not None:
                # A stream that has begun minds the time itself, because it says so in its last line.
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.cancelled() and self._stopping:
                raise ApiError(503, "the server is stopping; try again later", {"retry-after": "5"})
            if work.done():
                _raise_failure(work)
            elif not gone.done():
                raise ApiError(504, f"not done within {self._settings.time_out:g} seconds; send less at once")
        finally:
            self._works.discard(work)
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _body(self, receive: Receive) -> bytes | None:
        """All of the body; None if the client has gone."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.read_time_out) as time_out:
                self._arriving[time_out] = 0
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= self._settings.body_limit:
                        parts.append(part)
                        self._make_room(time_out, len(part))
                    else:
                        parts.clear()
                    if not message.get("more_body", False) or size > _DRAINED_BYTES:
                        break
        except TimeoutError:
            raise ApiError(408, "the body did not come in time; send it faster", {"connection": "close"}) from None
        finally:
            self._arriving_bytes -= self._arriving.pop(time_out, 0)
        if size > self._settings.body_limit:
            raise ApiError(
                413,
                f"the body has more than {self._settings.body_limit} bytes; send less at once",
                {"connection": "close"},
            )
        return b"".join(parts)

    def _make_room(self, time_out: asyncio.Timeout, size: int) -> None:
        """Count bytes of a body, and end the time of the oldest bodies if those that have not ended are too large."""
        if time_out in self._arriving:  # its time has not been ended already
            self._arriving[time_out] += size
            self._arriving_bytes += size
        while self._arriving_bytes > self._settings.body_limit * self._settings.concurrent_requests:
            oldest = next(iter(self._arriving))
            self._arriving_bytes -= self._arriving.pop(oldest)
            oldest.reschedule(asyncio.get_running_loop().time())


class _Answer:
    """The way back to the client, which remembers the status that was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        """Send an error, unless an answer has begun."""
        if self.status is not None:
            return
        body = json.dumps({"error": error.message}).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "access-control-allow-origin": "*",
            **error.headers,
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


def _raise_failure(work: asyncio.Future[None]) -> None:
    """Log a failure of the app, without the message, in which there may be a user's text."""
    error = work.exception()
    if error is not None:
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("a request failed with %s\n%s", type(error).__name__, where)
        raise ApiError(500, SERVER_ERROR) from None


def _replayed(body: bytes, gone: asyncio.Future[None]) -> Receive:
    """The body again, and then the news that the client has gone."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.shield(gone)
        return {"type": "http.disconnect"}

    return receive


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
