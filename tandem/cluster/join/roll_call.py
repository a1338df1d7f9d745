"""Roll call of the processes at their store: all come and fit together, or one says why not and all end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from itertools import groupby
from typing import NoReturn, TypeVar

from torch import distributed as dist
from torch.distributed import DistError, DistNetworkError, DistStoreError, Store

from tandem.cluster.join.launchers import process_rank, rendezvous
from tandem.cluster.join.meeting_store import Deadline, MeetingPlace, open_store
from tandem.cluster.join.secret import TOKEN_VARIABLE, new_nonce, same_signature, secret_token, signature
from tandem.errors import JoinError, SaidElsewhereError, TandemError
from tandem.monitor.network_interfaces import host_identity, host_name
from tandem.process_exit import ignore_sigterm
from tandem.units import rank_list

T = TypeVar("T")
# Between two looks at whether somebody has given up already.
LOOK_SECONDS = 1.0
# Longest stay for others to hear why it is over; on a busy machine a process may take seconds to look.
FAREWELL_SECONDS = 15.0
# Longest wait of a process that cannot start for the others, to find out whether they have the same fault.
FAULT_SECONDS = 30.0
# Key of the rank that speaks for all.
SPEAKER = "speaker"


@dataclass(frozen=True)
class Member:
    """A process's entry in the roll call."""

    rank: int
    host: str
    identity: str
    """The same for all processes of a host."""
    address: str = ""
    """Its address on the route to the store."""
    version: str = ""
    visible_gpus: int = 0
    gpu: str | None = None
    """UUID of the GPU that it takes; None if there is none, or none left."""
    run: str = ""
    """The directory of the run that it works on, if it works on one."""
    nonce: str = ""
    """A number used once, which the others sign; empty if it has no secret to check their signatures with."""
    fault: str = ""
    """The error that keeps it from joining."""


def call_roll(
    place: MeetingPlace,
    me: Member,
    size: int,
    deadline: Deadline,
    expected_hosts: Sequence[str],
    token: bytes | None = None,
) -> list[Member]:
    """All members in the order of ranks; a fault of any of them ends all, and is said by one.

    With a token, only those become members who have it, too.
    """
    store = place.store.own_keys
    me = me if token is None else replace(me, nonce=new_nonce())
    try:
        store.set(_key("here", me.rank), json.dumps(asdict(me)))
        missing = _still_missing(place, me, size, deadline, expected_hosts)
        here = [_member(store.get(_key("here", rank))) for rank in range(size) if rank not in missing]
        fault = combined_fault([(member.rank, member.host, member.fault) for member in here])
        if not fault and missing:
            fault = _missing_fault(missing, here, size, deadline, expected_hosts) + _instead(place)
        fault = fault or _run_fault(here) or _token_fault(store, here, me.rank, token, deadline)
        fault = fault or _version_fault(here) or gpu_fault(here)
        if not fault:
            return here
        _end_together(store, me.rank, [member.rank for member in here], fault)
    except DistNetworkError as error:
        raise JoinError("the process that the others meet at has ended; its own message says why") from error


def _member(text: bytes) -> Member:
    """A member as it has written itself down; one of another version may have other fields, too."""
    names = {field.name for field in fields(Member)}
    return Member(**{name: value for name, value in json.loads(text).items() if name in names})


def start_together(store: Store, roll: Sequence[Member], rank: int, deadline: Deadline, action: Callable[[], T]) -> T:
    """Take a last step that may fail on some processes; then all of them fail, and one says why."""
    result, fault = None, ""
    try:
        result = action()
    except TandemError as error:
        fault = str(error)
    store.set(_key("ready", rank), fault)
    keys = [_key("ready", member.rank) for member in roll]
    try:
        store.wait(keys, timedelta(seconds=max(deadline.left, LOOK_SECONDS)))
        said = [(member.rank, member.host, store.get(key).decode()) for member, key in zip(roll, keys, strict=True)]
        if together := combined_fault(said):
            _end_together(store, rank, range(len(roll)), together)
    except DistError as error:
        raise JoinError(fault or "a process has ended before all could start; its message says why") from error
    assert result is not None
    return result


def share_fault(fault: str) -> str | None:
    """Tell the others the error that keeps this process from joining; what to print, None if another process does."""
    if dist.is_initialized():
        ignore_sigterm()
        return fault
    me, deadline = process_rank(), Deadline(FAULT_SECONDS)
    try:
        place = open_store(rendezvous(), me, deadline)
    except TandemError:
        return fault
    try:
        member = Member(me.rank, host_name(), host_identity(), fault=fault)
        call_roll(place, member, me.size, deadline, (), secret_token())
    except SaidElsewhereError:
        return None
    except JoinError as error:
        return str(error) if fault in str(error) else f"{fault} ({error})"
    except DistError:
        return fault
    raise AssertionError("a fault ends the roll call")


def combined_fault(said: Sequence[tuple[int, str, str]]) -> str:
    """One text from every rank's host and fault: bare if all have the same, otherwise after ranks and hosts."""
    texts = list(dict.fromkeys(text for _, _, text in said))
    if len(texts) == 1:
        return texts[0]
    return "; ".join(
        f"{ranks_on_hosts((rank, host) for rank, host, found in said if found == text)}: {text}"
        for text in texts
        if text
    )


def ranks_on_hosts(ranks: Iterable[tuple[int, str]], separator: str = ", ") -> str:
    """Ranks with their hosts, as `rank 2 on vm1, ranks 3, 4 on vm2`."""
    by_host = groupby(ranks, key=lambda found: found[1])
    return separator.join(f"{rank_list([rank for rank, _ in found])} on {host}" for host, found in by_host)


def _still_missing(
    place: MeetingPlace, me: Member, size: int, deadline: Deadline, expected_hosts: Sequence[str]
) -> list[int]:
    """Ranks that have not come by the deadline, or by the time another process has ended the roll call."""
    store = place.store.own_keys

    def absent() -> list[int]:
        return [rank for rank in range(size) if not store.check([_key("here", rank)])]

    while True:
        if refusal := place.store.refusal(me.rank, me.host, place.where):
            raise JoinError(refusal)
        try:
            store.wait([_key("here", rank) for rank in range(size)], timedelta(seconds=LOOK_SECONDS))
            return []
        except DistStoreError:
            if not deadline.left or store.check([SPEAKER]):
                return absent()
            place.waiter.waiting_for(lambda: _named(absent(), size, expected_hosts) + _instead(place))


def _instead(place: MeetingPlace) -> str:
    refused = place.store.refused()
    return f"; {refused} came and was refused" if refused else ""


def _end_together(store: Store, rank: int, here: Iterable[int], fault: str) -> NoReturn:
    """End for a reason that all know: of those here, the first to put its name down says it."""
    speaks = store.compare_set(SPEAKER, "", str(rank)) == str(rank).encode()
    if speaks:
        ignore_sigterm()
    store.set(_key("gone", rank), "")
    # The store may end with this process: stay until the others have heard. Whoever loses it here has heard all.
    with suppress(DistError):
        store.wait([_key("gone", other) for other in here], timedelta(seconds=FAREWELL_SECONDS))
    raise (JoinError if speaks else SaidElsewhereError)(fault)


def _key(what: str, rank: int) -> str:
    return f"{what}/{rank}"


def _missing_fault(
    missing: Sequence[int], here: Sequence[Member], size: int, deadline: Deadline, expected_hosts: Sequence[str]
) -> str:
    listed = _named(missing, size, expected_hosts)
    if len(expected_hosts) != size:
        listed += f" (arrived were those on {', '.join(dict.fromkeys(member.host for member in here))})"
    return (
        f"{len(missing)} of {size} processes did not arrive within {deadline.seconds:.0f} s: {listed}; "
        "see what they say, or raise cluster.join_seconds"
    )


def _named(ranks: Sequence[int], size: int, expected_hosts: Sequence[str]) -> str:
    """Ranks with the hosts that they are expected on, where the launcher tells."""
    known = len(expected_hosts) == size
    return ranks_on_hosts(((rank, expected_hosts[rank]) for rank in ranks), "; ") if known else rank_list(ranks)


def _run_fault(roll: Sequence[Member]) -> str:
    """Two directories on one host are two runs; on several hosts one run may have several paths."""
    for member in roll:
        first = next(other for other in roll if other.identity == member.identity)
        if member.run and first.run and member.run != first.run:
            return (
                f"rank {member.rank} on {member.host} belongs to another run ({member.run}) than rank {first.rank} "
                f"there ({first.run}); start both with the same --run, or each with a port of its own (MASTER_PORT)"
            )
    return ""


def _token_fault(store: Store, roll: Sequence[Member], rank: int, token: bytes | None, deadline: Deadline) -> str:
    """Who does not have the secret that the others have; all processes find the same if there are two kinds."""
    remedy = f"set the same {TOKEN_VARIABLE} for all"
    without = [member for member in roll if not member.nonce]
    if len(without) == len(roll):
        return ""
    if without or token is None:
        return f"{_where(without)} came without the {TOKEN_VARIABLE} of the others; {remedy}"
    nonces = [member.nonce for member in roll]
    store.set(_key("proof", rank), signature(token, nonces, rank))
    keys = [_key("proof", member.rank) for member in roll]
    with suppress(DistStoreError):
        store.wait(keys, timedelta(seconds=max(deadline.left, LOOK_SECONDS)))
    alike = {
        member.rank: store.check([key])
        and same_signature(store.get(key).decode(errors="replace"), signature(token, nonces, member.rank))
        for member, key in zip(roll, keys, strict=True)
    }
    if all(alike.values()):
        return ""
    others = [member for member in roll if alike[member.rank] != alike[roll[0].rank]]
    firsts = [member for member in roll if alike[member.rank] == alike[roll[0].rank]]
    return f"{_where(others)} came with another {TOKEN_VARIABLE} than {_where(firsts)}; {remedy}"


def _version_fault(roll: Sequence[Member]) -> str:
    first = roll[0]
    others = dict.fromkeys(f"{member.host} has {member.version}" for member in roll if member.version != first.version)
    if not others:
        return ""
    return f"{first.host} has {first.version}, but {', '.join(others)}; install the same on all hosts"


def gpu_fault(roll: Sequence[Member]) -> str:
    """What is wrong with the way GPUs fell to processes, in a sentence that names hosts and ranks."""
    seeing = [member for member in roll if member.visible_gpus]
    if not seeing:
        return ""
    if without := [member for member in roll if not member.visible_gpus]:
        return (
            f"{_where(without)} {'sees' if len(without) == 1 else 'see'} no GPU, but rank {seeing[0].rank} on "
            f"{seeing[0].host} does; mend the driver or CUDA_VISIBLE_DEVICES there, or set CUDA_VISIBLE_DEVICES= for "
            "all to train on processors"
        )
    if left_over := [member for member in roll if member.gpu is None]:
        gpus = left_over[0].visible_gpus
        return (
            f"{_where(left_over)} {'has' if len(left_over) == 1 else 'have'} no GPU left: {gpus} are visible there; "
            f"start {gpus} processes on that host"
        )
    for member in roll:
        sharing = [other for other in roll if (other.identity, other.gpu) == (member.identity, member.gpu)]
        if len(sharing) > 1:
            return (
                f"{_where(sharing)} were given the same GPU ({member.gpu}); start one process for each card, or show "
                "each process its own with CUDA_VISIBLE_DEVICES"
            )
    return ""


def _where(members: Sequence[Member]) -> str:
    return ranks_on_hosts((member.rank, member.host) for member in members)
