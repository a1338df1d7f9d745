"""Whoever can reach the hub's port without the key of the run: nothing that is sent there stops the heartbeats."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from tandem.cluster.liveness.heartbeats import Event, Heartbeats, Roster
from tandem.cluster.liveness.pulse import Pulse, Timing

KEY = "a key"
PATIENCE = 600.0


@contextmanager
def beating_hub() -> Iterator[tuple[tuple[str, int], SimpleQueue[Event]]]:
    """Rank 0 of two; its address and what it finds out."""
    timing, events = Timing(beat=0.05), SimpleQueue[Event]()
    hub = Heartbeats(Roster(0, {0: "a", 1: "b"}), Pulse(timing, lambda: 0), events, timing, PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        hub.listen(server, KEY)
        hub.start()
        yield server.getsockname(), events
        hub.close("")


def first_line(address: tuple[str, int], sent: bytes) -> bytes:
    """What the hub answers first; nothing, if it closes the connection."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(sent + b"\n")
        with connection.makefile("rb") as received:
            return received.readline()


@pytest.mark.parametrize(
    "sent",
    [
        b'{"hello": [1], "key": "a key"}',
        b'{"hello": {}, "key": "a key"}',
        b'{"hello": true, "key": "a key"}',
        b'{"hello": 1, "key": ["a key"]}',
        b'{"hello": 1, "key": "\\ud800"}',
        b'{"hello": 1}',
        b'{"hello": 2, "key": "a key"}',
    ],
)
def test_a_stranger_is_let_go_and_the_others_are_heard(sent: bytes) -> None:
    with beating_hub() as (address, _):
        assert first_line(address, sent) == b""
        assert "beat" in json.loads(first_line(address, b'{"hello": 1, "key": "a key"}'))


def test_lines_that_nobody_can_parse_are_passed_over() -> None:
    with beating_hub() as (address, _):
        assert "beat" in json.loads(first_line(address, b"[" * 60_000 + b'\n{"hello": 1, "key": "a key"}'))


def test_a_process_that_sends_what_is_no_heartbeat_is_lost_alone() -> None:
    with beating_hub() as (address, events):
        first_line(address, b'{"hello": 1, "key": "a key"}\n{"beat": 5}')
        lost = events.get(timeout=60)
        assert getattr(lost, "words", "") == "rank 1 on b has ended (it sent what is no heartbeat: TypeError)"
