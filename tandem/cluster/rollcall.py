"""The first meeting of the processes of a run: who is here, on which host, and who is missing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import groupby

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistNetworkError, DistStoreError

from tandem.cluster.launchers import Place, Rendezvous
from tandem.cluster.network import host_name, interfaces
from tandem.errors import SaidElsewhereError, TandemError

# Between two attempts to reach a process that has not started yet: short against starting Python, and no load.
RETRY_SECONDS = 0.2
# One attempt at one address: an unreachable one must not use up the time of the next.
ATTEMPT_SECONDS = 3.0


@dataclass(frozen=True)
class Presence:
    """What a process says of itself when the roll is called."""

    rank: int
    host: str
    identity: str
    """The same for all processes of a host."""
    address: str
    """Its address on the route to the meeting place."""
    version: str


class Deadline:
    """A moment after which nobody waits any longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


def open_store(meeting: Rendezvous, place: Place, deadline: Deadline) -> Store:
    """The table at which all processes leave word, served by one of them or by the launcher."""
    if not meeting.launcher_serves and _serves(meeting, place):
        return PrefixStore(meeting.prefix, _serve(meeting.port))
    address = _reach(meeting, deadline)
    timeout = timedelta(seconds=max(deadline.left, ATTEMPT_SECONDS))
    return PrefixStore(meeting.prefix, TCPStore(address, meeting.port, is_master=False, timeout=timeout))


def call_roll(
    store: Store, me: Presence, size: int, deadline: Deadline, expected_hosts: Sequence[str]
) -> list[Presence]:
    """Everybody, in the order of ranks; who is missing when the time is up is named once, by the first who is here."""
    store.set(_key(me.rank), json.dumps(asdict(me)))
    keys = [_key(rank) for rank in range(size)]
    try:
        store.wait(keys, timedelta(seconds=max(deadline.left, RETRY_SECONDS)))
        missing: list[int] = []
    except DistStoreError:
        missing = [rank for rank in range(size) if not store.check([_key(rank)])]
    except DistNetworkError as error:
        raise TandemError("the process that the others meet at has ended; its own message says why") from error
    here = [Presence(**json.loads(store.get(_key(rank)))) for rank in range(size) if rank not in missing]
    fault = _missing_text(missing, here, size, deadline, expected_hosts) if missing else _version_fault(here)
    if fault is None:
        return here
    raise (TandemError if me.rank == here[0].rank else SaidElsewhereError)(fault)


def _key(rank: int) -> str:
    return f"roll/{rank}"


def _serves(meeting: Rendezvous, place: Place) -> bool:
    """Whether this is the process that keeps the table."""
    if meeting.rank_serves:
        return place.leads
    return not place.local_rank and any(interface.address in meeting.addresses for interface in interfaces())


def _serve(port: int) -> Store:
    try:
        return TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    except DistNetworkError as error:
        if "EADDRINUSE" in str(error):
            raise TandemError(
                f"port {port} on {host_name()} is in use; end the program that uses it, or choose another port "
                "(--port of tandem launch, otherwise MASTER_PORT)"
            ) from error
        raise TandemError(f"port {port} on {host_name()}: cannot be listened on ({error})") from error


def _reach(meeting: Rendezvous, deadline: Deadline) -> str:
    """The first address that answers; patient, because the process behind it may still be starting."""
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
            raise TandemError(
                f"nobody answered {host_name()} at {where}, port {meeting.port}, within {deadline.seconds:.0f} s "
                f"({reason.strerror or reason}): the first process has not started, or a firewall is between"
            )
        time.sleep(min(RETRY_SECONDS, deadline.left))


def _missing_text(
    missing: Sequence[int], here: Sequence[Presence], size: int, deadline: Deadline, expected_hosts: Sequence[str]
) -> str:
    start = f"{len(missing)} of {size} processes did not arrive within {deadline.seconds:.0f} s"
    if len(expected_hosts) == size:
        by_host = groupby(missing, key=lambda rank: expected_hosts[rank])
        listed = "; ".join(f"{_ranks(list(ranks))} on {host}" for host, ranks in by_host)
    else:
        arrived = ", ".join(dict.fromkeys(presence.host for presence in here))
        listed = f"{_ranks(missing)} (arrived were those on {arrived})"
    return f"{start}: {listed}; see what they say, or raise cluster.join_seconds"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _version_fault(everybody: Sequence[Presence]) -> str | None:
    first = everybody[0]
    others = [presence for presence in everybody if presence.version != first.version]
    if not others:
        return None
    listed = ", ".join(dict.fromkeys(f"{presence.host} has {presence.version}" for presence in others))
    return f"{first.host} has {first.version}, but {listed}; install the same on all hosts"
