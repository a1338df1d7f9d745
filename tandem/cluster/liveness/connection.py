"""A connection for heartbeats: small JSON messages, a line each, that never block, and what TCP knows of the peer."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

# A message is a few hundred bytes; whoever sends a longer line is no process of the run.
LONGEST_LINE = 1 << 16
# Where Linux has the milliseconds since the last acknowledgement in `struct tcp_info`: after eight single bytes and
# twelve numbers of four.
_LAST_ACKNOWLEDGED = 8 + 12 * 4
_TCP_INFO_BYTES = 104


class ClosedConnectionError(Exception):
    """The peer's end of a connection is closed; or its host is gone for so long that TCP has given up."""

    def __init__(self, gave_up: bool) -> None:
        super().__init__()
        self.gave_up = gave_up


class LineConnection:
    """One end of a connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unsent, self._unread = b"", b""

    def send(self, line: bytes, *, spare: bool = False) -> None:
        """Send an encoded message as far as there is room for it; a spare one is left out while others wait."""
        if spare and self._unsent:
            self._flush()
        if not (spare and self._unsent):
            self._unsent += line
            self._flush()

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come whole since the last call."""
        try:
            data = self.socket.recv(LONGEST_LINE)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ClosedConnectionError(isinstance(error, TimeoutError)) from error
        if not data:
            raise ClosedConnectionError(gave_up=False)
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > LONGEST_LINE:
            raise ClosedConnectionError(gave_up=False)
        return [message for line in lines if isinstance(message := _parsed(line), dict)]

    def seconds_unanswered(self) -> float | None:
        """How long ago the peer's host last acknowledged anything; None if nobody knows.

        Not whether something is under way: what this host cannot send at all is not.
        """
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except (OSError, AttributeError):  # not Linux
            return None
        return float(struct.unpack_from("=I", info, _LAST_ACKNOWLEDGED)[0]) / 1000

    def close(self) -> None:
        self.socket.close()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except OSError:
            # Full, or closed: then reading says so.
            pass


def encoded(message: dict[str, Any]) -> bytes:
    """A message as it is sent; once for all who get it."""
    return json.dumps(message).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
