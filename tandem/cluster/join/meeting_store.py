"""The key-value store (TCPStore) at which the processes of a run meet: serve it, or find and connect to it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta

from torch.distributed import DistNetworkError, PrefixStore, Store, TCPStore

from tandem.cluster.join.launchers import ProcessRank, Rendezvous
from tandem.errors import JoinError
from tandem.monitor.network_interfaces import host_name

# Between two attempts to reach a process that has not started yet: short against starting Python, and no load.
RETRY_SECONDS = 0.2
# One attempt at one address: an unreachable one must not use up the time of the next.
ATTEMPT_SECONDS = 3.0


class Deadline:
    """A time limit and how much of it is left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


def open_store(meeting: Rendezvous, me: ProcessRank, deadline: Deadline) -> tuple[Store, str]:
    """The store, served by one of the processes or by the launcher, and its address as this process reaches it."""
    serves = me.is_leader if meeting.here is None else meeting.here and not me.local_rank
    if serves and not meeting.launcher_serves:
        return PrefixStore(meeting.prefix, _serve(meeting.port)), meeting.addresses[0]
    address = _reach(meeting, deadline)
    return PrefixStore(meeting.prefix, _connect(address, meeting.port, deadline)), address


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


def _reach(meeting: Rendezvous, deadline: Deadline) -> str:
    """The first address that answers, retrying because the process behind it may still be starting."""
    reason: OSError = TimeoutError("timed out")
    while True:
        for address in meeting.addresses:
            try:
                with socket.create_connection((address, meeting.port), timeout=ATTEMPT_SECONDS):
                    return address
            except OSError as error:
                reason = error
        if not deadline.left:
            where = " or ".join(meeting.addresses)
            raise JoinError(
                f"nobody answered {host_name()} at {where}, port {meeting.port}, within {deadline.seconds:.0f} s "
                f"({reason.strerror or reason}): {meeting.remedy}"
            )
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
