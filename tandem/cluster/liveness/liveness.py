"""Liveness of a run's processes as one of them sees it: starts the heartbeats, and tells a listener what they find."""

from __future__ import annotations

import faulthandler
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tandem.cluster.liveness.heartbeats import HUB, CameBack, Event, FellSilent, Heartbeats, Roster, Slept
from tandem.cluster.liveness.pulse import TIMING, Pulse
from tandem.cluster.liveness.silence import LostPeers, Silence
from tandem.process_exit import end_process, say
from tandem.process_signals import heard_signal, lost_peer_code

CONNECT_SECONDS = 10.0
# The reason that others are given for the end of a process is a sentence, not a listing.
LONGEST_REASON = 500
START_AGAIN = "start again to go on"


class PeerListener:
    """Is told of silent and lost processes, in a thread of its own; this one tells the user on standard error."""

    stack_file: Path | None = None
    """Where to leave the stacks of this process's threads if it hangs."""

    def step(self) -> int:
        """The last whole step of this process."""
        return 0

    def fell_silent(self, silence: Silence, speaks: bool) -> None:
        """Other processes are silent, or this one seems to hang; one process of each host speaks."""
        if speaks:
            say(silence.words())

    def returned(self, rank: int, host: str, seconds: float, speaks: bool) -> None:
        """A silent process goes on."""
        if speaks:
            say(returned_words(rank, host, seconds))

    def slept(self, seconds: float) -> None:
        """This process did not run for a while."""

    def lost(self, words: str, speaks: bool) -> None:
        """The run cannot go on, and the main thread does not come back: end this process."""
        if speaks:
            say(f"{words}; {START_AGAIN}")
        end_process(lost_peer_code())


def returned_words(rank: int, host: str, seconds: float) -> str:
    return f"rank {rank} on {host} goes on after {seconds:.0f} s"


class Liveness:
    """Heartbeats of this process and its peers, while it works with them.

    A lost peer is told of once: by the main thread, if it comes back from the collective it was in, or else by the
    listener, which then ends the process.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[Sequence[int]],
        host_names: Sequence[str],
        patience: float,
        address: str,
        gather: Callable[[Any], list[Any]],
    ) -> None:
        host_of = {member: name for ranks, name in zip(hosts, host_names, strict=True) for member in ranks}
        self.listener = PeerListener()
        self.silent: dict[int, Silence] = {}
        """The silent processes that are known of."""
        self._rank, self._beside = rank, next(ranks for ranks in hosts if rank in ranks)
        self._lost_peers: LostPeers | None = None
        self._lost_known = threading.Event()
        self._over = threading.Event()
        self._telling = threading.Lock()
        """Held by whoever tells of a lost peer."""
        self._events: SimpleQueue[Event] = SimpleQueue()
        pulse = Pulse(TIMING, lambda: self.listener.step())
        self._heartbeats = Heartbeats(Roster(rank, host_of), pulse, self._events, TIMING, patience)
        self._teller = threading.Thread(target=self._tell, name="peer listener", daemon=True)
        self.unwatched = self._connect(address, gather)
        """Why nobody can tell whether the others are alive; empty if somebody can."""

    def _connect(self, address: str, gather: Callable[[Any], list[Any]]) -> str:
        family, fault, offer = socket.AF_INET6 if ":" in address else socket.AF_INET, "", None
        if self._rank == HUB:
            try:
                server = socket.create_server((address, 0), family=family)
                offer = [address, server.getsockname()[1], secrets.token_hex(16)]
                self._heartbeats.listen(server, offer[2])
            except OSError as error:
                fault = f"cannot listen at {address} ({error.strerror})"
        meeting = gather(offer)[HUB]
        if meeting is not None and self._rank != HUB:
            hub, port, key = meeting
            try:
                self._heartbeats.join(socket.create_connection((hub, port), CONNECT_SECONDS), key)
            except OSError as error:
                fault = f"cannot reach {hub}, port {port} ({error.strerror or error})"
        self._heartbeats.start()
        self._teller.start()
        return fault and f"no heartbeats: {fault}; a process that hangs will not be noticed"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Beat while the block lasts; the others are told why it ends, if it fails."""
        reason = ""
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                reason = f"stopped by {heard_signal().name}"
            else:
                reason = (str(error) or type(error).__name__)[:LONGEST_REASON]
            raise
        finally:
            self._over.set()
            self._heartbeats.close(reason)

    def explain(self) -> tuple[str, bool]:
        """What is known of a peer that a collective has failed for, and whether this process tells the user.

        To be called from the main thread, which then ends the process. It takes a moment until the end of a peer has
        got around. If the listener is about to end the process already, this never returns.
        """
        self._lost_known.wait(TIMING.last_words)
        self._telling.acquire()
        if self._lost_peers is None:
            return "lost the connection to another process, which says why", True
        return self._lost_peers.words, self._speaks(self._lost_peers.ranks)

    def _speaks(self, silent: Sequence[int]) -> bool:
        """Whether this is the first process of its host that is left to speak."""
        return self._rank == next((rank for rank in self._beside if rank not in silent), None)

    def _mute(self) -> list[int]:
        """The processes that cannot speak; one whose main thread hangs can."""
        return [rank for rank, silence in self.silent.items() if silence.cause != "hanging"]

    def _tell(self) -> None:
        while (event := self._events.get()) is not None:
            if isinstance(event, LostPeers):
                self._end_for(event)
                return
            # A full disk must not keep anybody from hearing of what comes next.
            with suppress(OSError, ValueError):
                self._pass_on(event)

    def _pass_on(self, event: FellSilent | CameBack | Slept) -> None:
        match event:
            case FellSilent(silence):
                self.silent.update(dict.fromkeys(silence.ranks, silence))
                if silence.cause == "hanging" and self._rank in silence.ranks:
                    self._dump_stack()
                self.listener.fell_silent(silence, self._speaks(self._mute()))
            case CameBack(rank, host, seconds):
                speaks = self._speaks(self._mute())
                self.silent.pop(rank, None)
                self.listener.returned(rank, host, seconds, speaks)
            case Slept(seconds):
                self.listener.slept(seconds)

    def _end_for(self, lost: LostPeers) -> None:
        self._lost_peers = lost
        self._lost_known.set()
        if not self.silent.keys() & set(lost.ranks):
            # The peer has ended: the main thread is about to notice by itself.
            self._over.wait(TIMING.last_words)
        if not self._over.is_set() and self._telling.acquire(blocking=False):
            self.listener.lost(lost.words, self._speaks(lost.ranks))

    def _dump_stack(self) -> None:
        """Append the stacks of all threads to the listener's file."""
        if self.listener.stack_file is None:
            return
        with suppress(OSError), self.listener.stack_file.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')}\n")
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)
            file.write("\n")
