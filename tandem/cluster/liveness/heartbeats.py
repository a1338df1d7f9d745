"""The thread that beats this process's heart and listens to those of others.

All processes are connected to rank 0, the hub, by small TCP connections of their own. Everybody sends a beat a second
to the hub, and the hub to everybody. The hub judges all others, and itself, and tells everybody what it finds; the
others judge the hub alone. The main thread may sit in a collective for ever meanwhile: gloo and NCCL release Python's
lock, and this thread waits for nobody. What is found goes into a queue, because a full disk or a terminal that nobody
reads may block whoever tells it to the user.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from tandem.cluster.liveness.connection import ClosedConnectionError, LineConnection, encoded
from tandem.cluster.liveness.pulse import Beat, Pulse, Timing
from tandem.cluster.liveness.silence import Cause, LostPeers, Silence
from tandem.monitor.activity import EXCHANGE
from tandem.process_signals import lost_peer_code

HUB = 0
# Connections that have not said yet who they are: more than these are strangers'.
MOST_UNKNOWN = 64
# Longest time that a message waits for others, so that they are read together; the end of a process is no more urgent.
PAUSE_SECONDS = 0.25


class FellSilent(NamedTuple):
    """Processes have fallen silent."""

    silence: Silence


class CameBack(NamedTuple):
    """A silent process goes on."""

    rank: int
    host: str
    seconds: float


class Slept(NamedTuple):
    """This process itself did not run for a while."""

    seconds: float


Event: TypeAlias = FellSilent | CameBack | Slept | LostPeers | None
"""None: nothing more will come."""


@dataclass
class Peer:
    """A process that is heard over a connection."""

    rank: int
    connection: LineConnection
    heard: float
    beat: Beat | None = None
    left: bool = False
    """Whether it has said goodbye."""
    reason: str = ""
    """Why it has, if it has failed."""


@dataclass
class Roster:
    """Which process this is, and where all of them are."""

    rank: int
    host_of: dict[int, str]
    """The name of each rank's host."""

    def beside(self, rank: int) -> list[int]:
        """The ranks of the same host."""
        return [other for other, host in self.host_of.items() if host == self.host_of[rank]]


class _Named(NamedTuple):
    """When a silence was told, and when it began."""

    at: float
    began: float


class Heartbeats:
    """Sends and hears beats in a thread until it is closed."""

    def __init__(
        self,
        roster: Roster,
        pulse: Pulse,
        events: SimpleQueue[Event],
        timing: Timing,
        patience: float,
    ) -> None:
        self._roster, self._pulse, self._events = roster, pulse, events
        self._timing, self._patience = timing, patience
        self._peers: dict[int, Peer] = {}
        self._named: dict[int, _Named] = {}
        self._own: set[int] = set()
        """Those of the silent that this process has found itself."""
        self._mine: Beat | None = None
        self._lost_at: float | None = None
        self._key = ""
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._goodbye = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def listen(self, listener: socket.socket, key: str) -> None:
        """Be the hub: take connections from whoever has the key."""
        self._listener, self._key = listener, key
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def join(self, connected: socket.socket, key: str) -> None:
        """Be connected to the hub."""
        peer = Peer(HUB, LineConnection(connected), time.perf_counter())
        peer.connection.send(encoded({"hello": self._roster.rank, "key": key}))
        self._peers[HUB] = peer
        self._selector.register(connected, selectors.EVENT_READ, peer)

    def start(self) -> None:
        self._thread.start()

    def close(self, reason: str) -> None:
        """Say goodbye, with the reason if this process has failed, and end the thread."""
        self._goodbye = reason
        self._closing.set()
        self._wake.send(b".")
        self._thread.join()

    def _run(self) -> None:
        due = before = time.perf_counter()
        while not self._closing.is_set():
            for key, _ in self._selector.select(max(due - time.perf_counter(), 0.0)):
                self._read(key)
            now = time.perf_counter()
            if now < due:
                # What comes within a moment is read at once: every time that it wakes costs more than a message does.
                self._closing.wait(min(PAUSE_SECONDS, due - now))
                continue
            if now - before > self._timing.silent / 2:
                self._wake_up(now, now - before)
            before, due = now, max(due + self._timing.beat, now)
            self._tick(now)
        self._tell({"bye": self._goodbye})
        for peer in self._peers.values():
            peer.connection.close()
        if self._listener is not None:
            self._listener.close()
        self._events.put(None)

    def _wake_up(self, now: float, seconds: float) -> None:
        """Everybody else seems silent to a process that was stopped: they get a new start."""
        self._events.put(Slept(seconds))
        self._pulse.slept()
        for peer in self._peers.values():
            peer.heard = now

    def _tick(self, now: float) -> None:
        self._mine = self._pulse.beat(now)
        line = encoded({"beat": self._mine})
        for peer in self._peers.values():
            peer.connection.send(line, spare=True)
        if self._lost_at is not None:
            if now - self._lost_at > self._timing.last_resort:
                # Whoever should end this process cannot: its disk or its terminal hangs.
                os._exit(lost_peer_code())
            return
        found = list(self._silences(now))
        silent = {rank for silence in found for rank in silence.ranks}
        for silence in found:
            new = tuple(rank for rank in silence.ranks if rank not in self._named)
            if new:
                self._found(FellSilent(replace(silence, ranks=new)))
        for rank in sorted(self._own - silent):
            self._found(CameBack(rank, self._roster.host_of[rank], now - self._named[rank].began))
        over = [silence for silence in found if now - self._named[silence.ranks[0]].at > self._patience]
        if over:
            self._found(over[0].lost_peers())

    def _silences(self, now: float) -> Iterator[Silence]:
        """Everybody that this process can judge and that is silent, those of a host and a cause together."""
        found: dict[tuple[str, Cause], list[int]] = {}
        for rank in sorted(self._judged()):
            if (cause := self._cause(rank, now)) is not None:
                found.setdefault((self._roster.host_of[rank], cause), []).append(rank)
        for (host, cause), ranks in found.items():
            if cause == "unreachable":
                # The others there fall silent within the second: one sentence for all.
                quiet = (rank for rank in self._roster.beside(ranks[0]) if self._unheard(rank, now) > 2)
                ranks = sorted({*ranks, *quiet})
            beat = self._mine if ranks[0] == self._roster.rank else self._peers[ranks[0]].beat
            assert beat is not None
            seconds = beat.seconds if cause == "hanging" else self._unheard(ranks[0], now)
            yield Silence(tuple(ranks), host, cause, seconds, beat.phase, beat.step)

    def _judged(self) -> Iterable[int]:
        """Processes that were heard once and have not left; the hub judges itself, too."""
        heard = [peer.rank for peer in self._peers.values() if peer.beat is not None and not peer.left]
        return [*heard, HUB] if self._listener is not None else heard

    def _cause(self, rank: int, now: float) -> Cause | None:
        peer = self._peers.get(rank)
        if peer is not None and now - peer.heard > self._timing.silent:
            unanswered = peer.connection.seconds_unanswered()
            # Beats go out every second, so a host that is there has just acknowledged one.
            return "stopped" if unanswered is not None and unanswered < self._timing.silent / 2 else "unreachable"
        beat = self._mine if peer is None else peer.beat
        if self._listener is None or beat is None or not beat.hangs:
            return None
        return "hanging" if self._somebody_waits_for(rank, beat) else None

    def _unheard(self, rank: int, now: float) -> float:
        peer = self._peers.get(rank)
        return 0.0 if peer is None or peer.beat is None or peer.left else now - peer.heard

    def _somebody_waits_for(self, rank: int, beat: Beat) -> bool:
        """Whether another process has been in a collective for as long as this one can be blamed for it."""
        others = [peer.beat for peer in self._peers.values() if peer.rank != rank and not peer.left]
        if rank != HUB:
            others.append(self._mine)
        return any(
            other is not None and other.phase == EXCHANGE and other.seconds > self._timing.hanging / 2
            for other in others
        )

    def _found(self, event: FellSilent | CameBack | LostPeers) -> None:
        """Act on what this process has found out, and tell the others if it is the hub."""
        if isinstance(event, FellSilent):
            self._own.update(event.silence.ranks)
        if self._listener is not None:
            match event:
                case FellSilent(silence):
                    self._tell({"fell": silence.as_dict()})
                case CameBack():
                    self._tell({"returned": list(event)})
                case LostPeers():
                    self._tell({"lost": [event.ranks, event.words]})
        self._act_on(event)

    def _act_on(self, event: FellSilent | CameBack | LostPeers) -> None:
        match event:
            case FellSilent(silence) if self._roster.rank in silence.ranks and silence.cause != "hanging":
                # Old news, held up by what it tells of.
                return
            case CameBack() if event.rank not in self._named:
                return
            case FellSilent(silence):
                now = time.perf_counter()
                self._named.update(dict.fromkeys(silence.ranks, _Named(now, now - silence.seconds)))
            case CameBack():
                self._named.pop(event.rank, None)
                self._own.discard(event.rank)
            case LostPeers(_, words):
                if self._lost_at is not None:
                    return
                self._lost_at = time.perf_counter()
                # Its end may come from another thread, and leaves no time for it then.
                self._tell({"bye": words})
        self._events.put(event)

    def _tell(self, message: dict[str, Any]) -> None:
        line = encoded(message)
        for peer in self._peers.values():
            peer.connection.send(line)

    def _read(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif isinstance(key.data, Peer):
            self._hear(key.data)
        elif isinstance(key.data, LineConnection):
            self._meet(key.data)

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(OSError):
            connection = LineConnection(self._listener.accept()[0])
            unknown = [key for key in self._selector.get_map().values() if isinstance(key.data, LineConnection)]
            if len(unknown) >= MOST_UNKNOWN:
                connection.close()
            else:
                self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _meet(self, connection: LineConnection) -> None:
        """Find out which process a new connection comes from; whoever does not have the key is let go."""
        try:
            messages = connection.receive()
        except ClosedConnectionError:
            messages = [{}]
        if not messages:
            return
        self._selector.unregister(connection.socket)
        hello, *others = messages
        rank, key = hello.get("hello"), hello.get("key")
        if type(rank) is not int or rank not in self._roster.host_of or not self._has_key(key):
            connection.close()
            return
        self._peers[rank] = peer = Peer(rank, connection, time.perf_counter())
        self._selector.register(connection.socket, selectors.EVENT_READ, peer)
        self._hear(peer, others)

    def _has_key(self, key: object) -> bool:
        # A text that cannot be encoded is nobody's key either.
        return isinstance(key, str) and hmac.compare_digest(key.encode(errors="replace"), self._key.encode())

    def _hear(self, peer: Peer, messages: Sequence[dict[str, Any]] | None = None) -> None:
        """Take messages that have come with its name, or those that come now."""
        try:
            self._take(peer, peer.connection.receive() if messages is None else messages)
        except ClosedConnectionError as closed:
            self._let_go(peer)
            host = self._roster.host_of[peer.rank]
            if peer.left and not peer.reason:
                return
            if closed.gave_up:
                unheard = time.perf_counter() - peer.heard
                self._found(Silence((peer.rank,), host, "unreachable", unheard, "", 0).lost_peers())
            else:
                self._found(LostPeers.ended(peer.rank, host, peer.reason))
        except Exception as error:  # whatever comes from one of them, the others are heard
            self._let_go(peer)
            reason = f"it sent what is no heartbeat: {type(error).__name__}"
            self._found(LostPeers.ended(peer.rank, self._roster.host_of[peer.rank], reason))

    def _let_go(self, peer: Peer) -> None:
        self._selector.unregister(peer.connection.socket)
        peer.connection.close()
        self._peers.pop(peer.rank)

    def _take(self, peer: Peer, messages: Iterable[dict[str, Any]]) -> None:
        peer.heard = time.perf_counter()
        for message in messages:
            match message:
                case {"beat": beat}:
                    peer.beat = Beat(*beat)
                case {"bye": reason}:
                    peer.left, peer.reason = True, str(reason)
                case {"fell": told} if peer.rank == HUB:
                    self._act_on(FellSilent(Silence.from_dict(told)))
                case {"returned": [rank, host, seconds]} if peer.rank == HUB:
                    self._act_on(CameBack(rank, host, seconds))
                case {"lost": [ranks, words]} if peer.rank == HUB:
                    self._act_on(LostPeers(tuple(ranks), words))
