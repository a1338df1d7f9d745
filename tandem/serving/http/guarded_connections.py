"""Connections that cost little: those that send nothing, or only half of a request, are closed in time."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tandem.serving.serve_settings import ServeSettings


class GuardedConnection(H11Protocol):
    """Uvicorn's HTTP/1.1 connection with a time limit for the head of a request, and for a peer that does not answer.

    Uvicorn itself waits without end for the first byte of a connection, and for the rest of a head.
    """

    settings = ServeSettings()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._notice_lost_peers(transport.get_extra_info("socket"))
        self._wait_for_head()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_silent():  # what comes begins a request
            self._waits_since = self.loop.time()
        super().data_received(data)
        if self._is_silent():
            self._wait_for_head()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._waits_since = self.loop.time()
        if not self._is_silent():  # the next request was already here
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Say in JSON, as everywhere, that this is no HTTP request."""
        body = json.dumps({"error": f"{msg} Send HTTP/1.1."}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        try:
            head = self.conn.send(h11.Response(status_code=400, headers=[*headers, (b"connection", b"close")]))
            data = self.conn.send(h11.Data(data=body))
            self.transport.write((head or b"") + (data or b""))
        except h11.LocalProtocolError:  # an answer has already begun
            pass
        self.transport.close()

    def _is_silent(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.read_time_out, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self.transport.abort()

    def _is_waiting(self) -> bool:
        """Whether it is the client's turn: to send a request, or the rest of one."""
        return self._is_silent() or self.cycle.more_body

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client if there are too many."""
        if len(self.connections) <= self.settings.connections:
            return
        others = [each for each in self.connections if isinstance(each, GuardedConnection) and each is not self]
        waiting = [each for each in others if each._is_waiting()]
        min(waiting, key=lambda each: each._waits_since, default=self).transport.abort()

    def _notice_lost_peers(self, connection: socket.socket) -> None:
        """Have the system give up a peer that is gone without a word, or that never reads its answer."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = int(1000 * self.settings.time_out)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
