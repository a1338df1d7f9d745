"""The first meeting of the processes of a run: who is here, on which host, and who is missing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import groupby

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistError, DistNetworkError, DistStoreError

from tandem.cluster.launchers import Place, Rendezvous
from tandem.cluster.network import host_name
from tandem.errors import SaidElsewhereError, TandemError

# Between two attempts to reach a process that has not started yet: short against starting Python, and no load.
RETRY_SECONDS = 0.2
# One attempt at one address: an unreachable one must not use up the time of the next.
ATTEMPT_SECONDS = 3.0
# Between two looks at whether somebody has given up already.
LOOK_SECONDS = 1.0
# Longest stay for others to hear why it is over; on a busy machine a process may take seconds to look.
FAREWELL_SECONDS = 15.0
# Who gave up first, and says why.
VERDICT = "verdict"


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
    visible_cards: int = 0
    """GPUs that it may use."""
    card: str | None = None
    """The one that it takes, by UUID; None if there is none, or none left."""


class Deadline:
    """A moment after which nobody waits any longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


def open_store(meeting: Rendezvous, place: Place, deadline: Deadline) -> tuple[Store, str]:
    """The table at which all processes leave word, served by one of them or by the launcher, and its address."""
    if not meeting.launcher_serves and _serves(meeting, place):
        return PrefixStore(meeting.prefix, _serve(meeting.port)), meeting.addresses[0]
    address = _reach(meeting, deadline)
    return PrefixStore(meeting.prefix, _connect(address, meeting.port, deadline)), address


def call_roll(
    store: Store, me: Presence, size: int, deadline: Deadline, expected_hosts: Sequence[str]
) -> list[Presence]:
    """Everybody, in the order of ranks; what is wrong is said once, by the first who finds it."""
    store.set(_key(me.rank), json.dumps(asdict(me)))
    try:
        missing = _still_missing(store, size, deadline)
        here = [Presence(**json.loads(store.get(_key(rank)))) for rank in range(size) if rank not in missing]
        if missing:
            fault: str | None = _missing_text(missing, here, size, deadline, expected_hosts)
        else:
            fault = _version_fault(here) or card_fault(here)
        if fault is None:
            return here
        # Of all who find it at the same time, the one whose word is put down first speaks.
        speaks = store.compare_set(VERDICT, "", str(me.rank)) == str(me.rank).encode()
        store.set(_key(me.rank, "gone"), "")
        _let_others_go(store, [_key(presence.rank, "gone") for presence in here])
    except DistNetworkError as error:
        raise TandemError("the process that the others meet at has ended; its own message says why") from error
    raise (TandemError if speaks else SaidElsewhereError)(fault)


def start_together(store: Store, rank: int, size: int, fault: TandemError | None, deadline: Deadline) -> None:
    """Go on only if all can; what keeps one of them back is said there, and the others end with it."""
    store.set(_key(rank, "ready"), "" if fault is None else str(fault))
    ready = [_key(other, "ready") for other in range(size)]
    try:
        store.wait(ready, timedelta(seconds=max(deadline.left, LOOK_SECONDS)))
        faulty = any(store.get(key) for key in ready)
        store.set(_key(rank, "gone"), "")
        if faulty:
            _let_others_go(store, [_key(other, "gone") for other in range(size)])
    except DistError as error:
        raise fault or TandemError("a process has ended before all could start; its message says why") from error
    if faulty:
        raise fault or SaidElsewhereError("another process cannot start; its message says why")


def _still_missing(store: Store, size: int, deadline: Deadline) -> list[int]:
    """Ranks that have not come when the time is up, or when somebody else has found so."""
    while True:
        try:
            store.wait([_key(rank) for rank in range(size)], timedelta(seconds=LOOK_SECONDS))
            return []
        except DistStoreError:
            if not deadline.left or store.check([VERDICT]):
                return [rank for rank in range(size) if not store.check([_key(rank)])]


def _let_others_go(store: Store, gone: Sequence[str]) -> None:
    """Stay until the others have heard, because the table may end with this process; but not for ever.

    Whoever loses the table here has heard all there is to hear: the one who keeps it has seen all others go.
    """
    with suppress(DistError):
        store.wait(list(gone), timedelta(seconds=FAREWELL_SECONDS))


def _key(rank: int, what: str = "here") -> str:
    return f"{what}/{rank}"


def _serves(meeting: Rendezvous, place: Place) -> bool:
    """Whether this is the process that keeps the table."""
    return place.leads if meeting.here is None else meeting.here and not place.local_rank


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
                f"({reason.strerror or reason}): {meeting.remedy}"
            )
        time.sleep(min(RETRY_SECONDS, deadline.left))


def _connect(address: str, port: int, deadline: Deadline) -> Store:
    """Connect to the key-value store that another process serves, until the deadline."""
    opened: list[Store] = []

    def sit_down() -> None:
        timeout = timedelta(seconds=max(deadline.left, ATTEMPT_SECONDS))
        with suppress(DistNetworkError):
            opened.append(TCPStore(address, port, is_master=False, timeout=timeout))

    # In a thread, because it waits for ever for a word from whatever else may listen there.
    waiter = threading.Thread(target=sit_down, daemon=True)
    waiter.start()
    waiter.join(max(deadline.left, ATTEMPT_SECONDS))
    if not opened:
        raise TandemError(
            f"what answers {host_name()} at {address}, port {port}, is not the first process of this run; "
            "end that program, or choose another port (--port of tandem launch, otherwise MASTER_PORT)"
        )
    return opened[0]


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


def card_fault(everybody: Sequence[Presence]) -> str | None:
    """What is wrong with the way cards fell to processes, in a sentence that names hosts and ranks."""
    without = [presence for presence in everybody if not presence.visible_cards]
    if len(without) == len(everybody):
        return None
    if without:
        other = next(presence for presence in everybody if presence.visible_cards)
        verb = "sees" if len(without) == 1 else "see"
        return (
            f"{_where(without)} {verb} no GPU, but rank {other.rank} on {other.host} does; mend the driver or "
            "CUDA_VISIBLE_DEVICES there, or set CUDA_VISIBLE_DEVICES= for all to train on processors"
        )
    left_over = [presence for presence in everybody if presence.card is None]
    if left_over:
        cards = left_over[0].visible_cards
        verb = "has" if len(left_over) == 1 else "have"
        return (
            f"{_where(left_over)} {verb} no GPU left: {cards} are visible there; start {cards} processes on that host"
        )
    by_card: dict[tuple[str, str], list[Presence]] = {}
    for presence in everybody:
        by_card.setdefault((presence.identity, presence.card or ""), []).append(presence)
    for (_, card), sharing in by_card.items():
        if len(sharing) > 1:
            return (
                f"{_where(sharing)} were given the same GPU ({card}); start one process for each card, or show each "
                "process its own with CUDA_VISIBLE_DEVICES"
            )
    return None


def _where(processes: Sequence[Presence]) -> str:
    """Ranks with their hosts, as `rank 2 on vm1, ranks 3, 4 on vm2`."""
    by_host = groupby(processes, key=lambda presence: presence.host)
    return ", ".join(f"{_ranks([presence.rank for presence in found])} on {host}" for host, found in by_host)
