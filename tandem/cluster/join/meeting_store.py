"""The key-value store (TCPStore) at which the processes of a run meet: serve it, or find and connect to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from torch.distributed import DistNetworkError, PrefixStore, Store, TCPStore

from tandem.cluster.join.launchers import ProcessRank, Rendezvous, launched_as
from tandem.cluster.join.store_owner import OwnedStore
from tandem.errors import JoinError
from tandem.monitor.network_interfaces import host_name
from tandem.process_exit import say

# Between two attempts to reach a process that has not started yet: short against starting Python, and no load.
RETRY_SECONDS = 0.2
# One attempt at one address: an unreachable one must not use up the time of the next.
ATTEMPT_SECONDS = 3.0
# After so long a wait the user is told what is waited for; most starts are over by then.
SAY_AFTER_SECONDS = 15.0


class Deadline:
    """A time limit and how much of it is left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


class PatientWaiter:
    """Tells the user, once, what a long wait is for; the first process of each host does."""

    def __init__(self, me: ProcessRank, deadline: Deadline) -> None:
        self._silent, self._deadline = bool(me.local_rank), deadline
        self._after = deadline.left - SAY_AFTER_SECONDS

    def waiting_for(self, whom: Callable[[], str]) -> None:
        if not self._silent and self._deadline.left < self._after:
            self._silent = True
            say(f"waiting for {whom()}; for up to {self._deadline.left:.0f} s more")


class MeetingPlace(NamedTuple):
    """The store at which processes meet, as one of them has reached it."""

    store: OwnedStore
    address: str
    port: int
    waiter: PatientWaiter

    @property
    def where(self) -> str:
        return f"{self.address}, port {self.port}"


def open_store(meeting: Rendezvous, me: ProcessRank, deadline: Deadline) -> MeetingPlace:
    """Serve the store, or reach the one that another process or the launcher serves."""
    serves = me.is_leader if meeting.here is None else meeting.here and not me.local_rank
    waiter = PatientWaiter(me, deadline)
    if serves and not meeting.launcher_serves:
        store, address = _serve(meeting.port), meeting.addresses[0]
    else:
        address = _reach(meeting, deadline, waiter)
        store = _connect(address, meeting.port, deadline)
    # Where the launcher serves the store it belongs to whoever leads.
    is_owner = me.is_leader if meeting.launcher_serves else serves
    owned = OwnedStore(PrefixStore(meeting.prefix, store), launched_as(), is_owner)
    return MeetingPlace(owned, address, meeting.port, waiter)


def _serve(port: int) -> Store:
    try:
        return TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    except DistNetworkError as error:
        if "EADDRINUSE" in str(error):
            raise JoinError(
                f"port {port} on {host_name()} is in use; end the program that uses it, or choose another port "
                "(--port of tandem launch, otherwise MASTER_PORT)"
            ) from error
        raise JoinError(f"port {port} on {host_name()}: cannot be listened on ({error})") from error


def _reach(meeting: Rendezvous, deadline: Deadline, waiter: PatientWaiter) -> str:
    """The first address that answers, retrying because the process behind it may still be starting."""
    reason: OSError = TimeoutError("timed out")
    where = " or ".join(meeting.addresses)
    while True:
        for address in meeting.addresses:
            try:
                with socket.create_connection((address, meeting.port), timeout=ATTEMPT_SECONDS):
                    return address
            except OSError as error:
                reason = error
        if not deadline.left:
            raise JoinError(
                f"nobody answered {host_name()} at {where}, port {meeting.port}, within {deadline.seconds:.0f} s "
                f"({reason.strerror or reason}): {meeting.remedy}"
            )
        waiter.waiting_for(lambda: f"the first process to answer at {where}, port {meeting.port}")
        time.sleep(min(RETRY_SECONDS, deadline.left))


def _connect(address: str, port: int, deadline: Deadline) -> Store:
    """Connect to the store that another process serves, until the deadline."""
    opened: list[Store] = []
    seconds = max(deadline.left, ATTEMPT_SECONDS)

    def connect() -> None:
        with suppress(DistNetworkError):
            opened.append(TCPStore(address, port, is_master=False, timeout=timedelta(seconds=seconds)))

    # In a thread, because it waits for ever for a word from whatever else may listen there.
    waiter = threading.Thread(target=connect, daemon=True)
    waiter.start()
    waiter.join(seconds)
    if not opened:
        raise JoinError(
            f"what answers {host_name()} at {address}, port {port}, is not the first process of this run; "
            "end that program, or choose another port (--port of tandem launch, otherwise MASTER_PORT)"
        )
    return opened[0]
