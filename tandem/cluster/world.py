"""Who this process is among all processes of a run, and how they agree on small things."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout

from tandem.cluster.devices import card_of, device_of, own_card, visible_cards
from tandem.cluster.launchers import expected_hosts, place, rendezvous
from tandem.cluster.network import Interface, host_identity, host_name, interface_named, interface_towards
from tandem.cluster.rollcall import Deadline, Presence, call_roll, open_store, start_together
from tandem.cluster.version import package_version
from tandem.config import ClusterConfig
from tandem.errors import SaidElsewhereError, TandemError

T = TypeVar("T")
# Longest wait for a peer in the middle of a run: it may be saving a large checkpoint to a slow disk.
PEER_TIMEOUT = timedelta(minutes=30)
# Between two looks at whether NCCL's first message has arrived: setting up its rings takes a second or more.
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class World:
    """A process's place: its rank among `size` processes on some hosts, and the device it computes on.

    Small messages are CPU tensors and go over gloo, also between cards: they wait for no kernel, and where a peer is
    gone gloo says so at once, while NCCL's kernels wait.
    """

    rank: int
    size: int
    device: torch.device
    hosts: tuple[tuple[int, ...], ...] = ((0,),)
    """The ranks on each host; hosts in the order of their first ranks."""
    host_names: tuple[str, ...] = ("",)
    host_cards: tuple[str, ...] = ()
    """The cards that the processes of this host compute on, by UUID."""
    interface: Interface | None = None
    """Where this process's messages to others pass."""
    inside: dist.ProcessGroup | None = None
    """The processes of this host, if there are several."""
    between: dist.ProcessGroup | None = None
    """The first process of every host, if there are several hosts and this is one of them."""

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes what exists once in a run."""
        return not self.rank

    @property
    def host(self) -> int:
        """Number of this process's host."""
        return self.host_of(self.rank)

    def host_of(self, rank: int) -> int:
        """Number of a rank's host."""
        return next(number for number, ranks in enumerate(self.hosts) if rank in ranks)

    @property
    def leads_host(self) -> bool:
        """Whether this is the one process that speaks for its host to the others."""
        return self.rank == self.hosts[self.host][0]

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes: one small message, the same answer everywhere."""
        if self.size == 1:
            return list(numbers)
        packed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(packed)
        return [float(number) for number in packed.tolist()]

    def total_inside(self, *numbers: float) -> list[float]:
        """Each number summed over the processes of this host."""
        if self.inside is None:
            return list(numbers)
        packed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(packed, group=self.inside)
        return [float(number) for number in packed.tolist()]

    def largest(self, number: float) -> float:
        """The largest of all processes' numbers."""
        if self.size == 1:
            return number
        packed = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(packed, dist.ReduceOp.MAX)
        return float(packed)

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def meet(self) -> None:
        """Wait until all processes are here."""
        self.total(0.0)

    def pass_on_inside(self, tensor: Tensor) -> None:
        """Give the host's first process's tensor to the others on the host."""
        if self.inside is not None:
            dist.broadcast(tensor, self.hosts[self.host][0], group=self.inside)

    def agree(self, wish: bool) -> bool:
        """True for all processes if it is true for any of them."""
        return self.total(float(wish))[0] > 0

    def together(self, action: Callable[[], T]) -> T:
        """Do something that may fail on some process: then all of them fail, and none waits for ever."""
        try:
            result = action()
        except TandemError:
            self.agree(True)
            raise
        if self.agree(False):
            raise SaidElsewhereError("another process has failed; its message says why")
        return result

    def refusal(self, message: str) -> TandemError:
        """The error to raise for what all processes find alike: the first one tells the user, the others just end."""
        return TandemError(message) if self.leads else SaidElsewhereError(message)

    def told(self, message: bytes) -> bytes:
        """The first process's message, on every process."""
        if self.size == 1:
            return message
        length = torch.tensor(len(message))
        dist.broadcast(length, 0)
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.leads:
            content.copy_(torch.frombuffer(bytearray(message), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def from_each_host(self, message: bytes) -> list[bytes]:
        """What the first process of each host says, in the order of hosts, on every process; it holds no zero bytes."""
        if self.size == 1:
            return [message]
        longest = int(self.largest(len(message)))
        # Everybody adds its own line to the others' zeros.
        table = torch.zeros(len(self.hosts), longest, dtype=torch.uint8)
        if self.leads_host:
            table[self.host, : len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        return [line.tobytes().rstrip(b"\0") for line in self.sum_(table).numpy()]

    def check_same(self, what: str, value: str) -> None:
        """Insist that all processes hold the same value; those on other hosts that do not are named."""
        differs = self.told(value.encode()) != value.encode()
        votes = torch.zeros(len(self.hosts))
        votes[self.host] = differs
        if not self.sum_(votes).any():
            return
        other = ", ".join(name for name, vote in zip(self.host_names, votes.tolist(), strict=True) if vote)
        raise self.refusal(f"{what} on {other} is not the one on {self.host_names[0]}; put the same on all hosts")


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether an error is that of a connection to a process that has ended or cannot be reached any more."""
    # gloo has no exception of its own; its errors name its source files.
    return isinstance(error, dist.DistError) or "gloo" in str(error)


@contextmanager
def joined_world(settings: ClusterConfig | None = None) -> Iterator[World]:
    """Join the processes that were started together, or stand alone.

    The groups are never taken down, because that can abort the process: it leaves through `ending.end_process`.
    """
    rank, size, local_rank = place()
    device = device_of(local_rank)
    if size == 1:
        card = card_of(device)
        yield World(rank, size, device, host_names=(host_name(),), host_cards=() if card is None else (card.uuid,))
        return
    world = _join(settings or ClusterConfig(), device)
    try:
        yield world
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        raise TandemError(
            "lost the connection to another process; see what it said, then start again to go on"
        ) from error


def _join(settings: ClusterConfig, device: torch.device) -> World:
    """Meet the others, choose the interface, connect."""
    meeting, mine, deadline = rendezvous(), place(), Deadline(settings.join_seconds)
    store, address = open_store(meeting, mine, deadline)
    cards = visible_cards()
    own = own_card(mine.local_rank, len(cards))
    me = Presence(
        mine.rank,
        host_name(),
        host_identity(),
        interface_towards(address).address,
        package_version(),
        visible_cards=len(cards),
        card=None if own is None else cards[own].uuid,
    )
    roll = call_roll(store, me, mine.size, deadline, expected_hosts())
    interface, fault = _choose_interface(settings, me, roll, address)
    start_together(store, mine.rank, mine.size, fault, deadline)
    assert interface is not None
    os.environ["GLOO_SOCKET_IFNAME"] = interface.name
    # NCCL takes names for beginnings of names, unless told otherwise; what the user has set there stays.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface.name}")
    # NCCL's watchdog is to give up a broken communicator and leave the process alone: the next small message over gloo
    # fails at once, and what happened is said and written down. (By default it aborts the process.)
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=mine.rank,
            world_size=mine.size,
            timeout=timedelta(seconds=settings.join_seconds),
        )
        _check_messages(device, deadline)
    except RuntimeError as error:
        raise TandemError(
            f"{me.host} met the others but cannot exchange messages over {interface.name} ({interface.address}): "
            "a process has ended, a firewall is between, or another cluster.interface is needed"
        ) from error
    _set_pg_timeout(PEER_TIMEOUT, dist.group.WORLD)
    world = _placed_on_hosts(World(mine.rank, mine.size, device, interface=interface), roll)
    # Groups are made at the table of the roll call, which ends with the process that keeps it: nobody leaves before all
    # have theirs.
    world.meet()
    return world


def _check_messages(device: torch.device, deadline: Deadline) -> None:
    """Exchange first messages, which show whether connections stand, while the time limit is still that of joining."""
    dist.all_reduce(torch.zeros(1))
    if device.type != "cuda":
        return
    message = torch.zeros(1, device=device)
    # NCCL connects within the first call, which may hang; over NCCL a call returns before anything has travelled, and
    # waiting for the device may hang, too. So a thread makes the call, and the message is asked after.
    thread = ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(device,))
    call = thread.submit(dist.all_reduce, message, async_op=True)
    thread.shutdown(wait=False)
    while not (call.done() and call.result().is_completed()):
        if not deadline.left:
            raise RuntimeError("NCCL's first message did not arrive")
        time.sleep(POLL_SECONDS)


def _choose_interface(
    settings: ClusterConfig, me: Presence, roll: list[Presence], meeting: str
) -> tuple[Interface | None, TandemError | None]:
    """What the user says, or the interface on the route to the other hosts; or what is wrong with it."""
    elsewhere = [presence for presence in roll if presence.identity != me.identity]
    # Seen from the meeting place's own host its name may stand for the loopback: that address is of no use to others.
    outside = [presence for presence in elsewhere if not Interface("", presence.address).local]
    chosen = settings.interface or os.environ.get("GLOO_SOCKET_IFNAME")
    try:
        if chosen is not None:
            interface = interface_named(chosen)
        else:
            interface = interface_towards(outside[0].address if outside else meeting)
    except TandemError as error:
        return None, error
    if outside and interface.local:
        return None, TandemError(
            f"cluster.interface: {interface.name} of {me.host} leads to no other host; leave it empty, or name one "
            f"that reaches {outside[0].host}"
        )
    return interface, None


def _placed_on_hosts(world: World, roll: list[Presence]) -> World:
    """The world with its hosts, and a group of processes for each level."""
    ranks_by_host: dict[str, list[int]] = {}
    for presence in roll:
        ranks_by_host.setdefault(presence.identity, []).append(presence.rank)
    hosts = tuple(map(tuple, ranks_by_host.values()))
    inside = None
    # Every process takes part in making every group, its own or not.
    for ranks in hosts:
        if len(ranks) > 1:
            group = dist.new_group(list(ranks), timeout=PEER_TIMEOUT)
            inside = group if world.rank in ranks else inside
    here = next(ranks for ranks in hosts if world.rank in ranks)
    leaders = [ranks[0] for ranks in hosts]
    between = dist.new_group(leaders, timeout=PEER_TIMEOUT) if len(hosts) > 1 else None
    return World(
        world.rank,
        world.size,
        world.device,
        hosts=hosts,
        host_names=tuple(roll[rank].host for rank in leaders),
        host_cards=tuple(card for rank in here if (card := roll[rank].card) is not None),
        interface=world.interface,
        inside=inside,
        between=between if world.rank in leaders else None,
    )
