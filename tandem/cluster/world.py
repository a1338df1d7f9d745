"""The processes of a run: rank, hosts, process groups, and small collectives over gloo; `joined_world` joins them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store

from tandem.cluster.devices import gpu_count, gpu_of, local_device
from tandem.cluster.join.launchers import ProcessRank, expected_hosts, process_rank, rendezvous, threads_of_task
from tandem.cluster.join.meeting_store import Deadline, open_store
from tandem.cluster.join.roll_call import Member, call_roll, combined_fault, start_together
from tandem.cluster.join.secret import secret_token
from tandem.cluster.liveness.liveness import START_AGAIN, Liveness
from tandem.cluster.source_version import package_version
from tandem.config import ClusterConfig
from tandem.errors import JoinError, LostPeerError, LostPeerSaidElsewhereError, SaidElsewhereError, TandemError
from tandem.monitor.activity import ACTIVITY, EXCHANGE
from tandem.monitor.network_interfaces import Interface, host_identity, host_name, interface_named, interface_towards
from tandem.process_exit import ignore_sigterm
from tandem.storage import error_in_words

T = TypeVar("T")
# Longest wait for a peer in the middle of a run: it may be saving a large checkpoint to a slow disk.
PEER_TIMEOUT = timedelta(minutes=30)
# Between two looks at whether NCCL's first message has arrived: setting up its rings takes a second or more.
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class World:
    """One process's view of all processes of a run: its rank, its device, the hosts, and messages between them.

    Small messages are CPU tensors and go over gloo, also between GPUs: they wait for no kernel, and where a peer is
    gone gloo says so at once, while NCCL's kernels wait.
    """

    rank: int
    size: int
    device: torch.device
    hosts: tuple[tuple[int, ...], ...] = ((0,),)
    """The ranks on each host; hosts in the order of their first ranks."""
    host_names: tuple[str, ...] = ("",)
    host_cards: tuple[str, ...] = ()
    """UUIDs of the GPUs that the processes of this host compute on."""
    interface: Interface | None = None
    """The network interface that this process's messages to others pass."""
    host_group: dist.ProcessGroup | None = None
    """The process group of this host, if it has several processes."""
    leaders_group: dist.ProcessGroup | None = None
    """The process group of every host's first process, if there are several hosts and this is such a process."""
    liveness: Liveness | None = field(default=None, compare=False)
    """Heartbeats of all processes, if there are several."""

    @property
    def is_leader(self) -> bool:
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
    def is_host_leader(self) -> bool:
        """Whether this is the one process that speaks for its host to the others."""
        return self.rank == self.hosts[self.host][0]

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group of all processes, if there are several."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes: one small message, the same answer everywhere."""
        return self._reduced(numbers, dist.ReduceOp.SUM)

    def total_in_host(self, *numbers: float) -> list[float]:
        """Each number summed over the processes of this host."""
        return list(numbers) if self.host_group is None else self._reduced(numbers, dist.ReduceOp.SUM, self.host_group)

    def largest(self, number: float) -> float:
        """The largest of all processes' numbers."""
        return self._reduced([number], dist.ReduceOp.MAX)[0]

    def _reduced(
        self, numbers: Sequence[float], operation: dist.ReduceOp.RedOpType, group: dist.ProcessGroup | None = None
    ) -> list[float]:
        if self.size == 1:
            return list(numbers)
        packed = torch.tensor(numbers, dtype=torch.float64)
        with ACTIVITY.doing(EXCHANGE):
            dist.all_reduce(packed, operation, group)
        return [float(number) for number in packed.tolist()]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.total(0.0)

    def broadcast_in_host(self, tensor: Tensor) -> None:
        """Overwrite a tensor with that of the host's first process."""
        if self.host_group is not None:
            with ACTIVITY.doing(EXCHANGE):
                dist.broadcast(tensor, self.hosts[self.host][0], group=self.host_group)

    def gather(self, message: Any) -> list[Any]:
        """Every process's message, by rank, on every process: anything that JSON can say."""
        if self.size == 1:
            return [message]
        text = json.dumps(message).encode()
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with ACTIVITY.doing(EXCHANGE):
            dist.all_gather(lengths, torch.tensor([len(text)]))
        # gloo gathers tensors of one size; JSON does not mind spaces at its end.
        padded = text.ljust(int(max(lengths)))
        texts = [torch.zeros(len(padded), dtype=torch.uint8) for _ in range(self.size)]
        with ACTIVITY.doing(EXCHANGE):
            dist.all_gather(texts, torch.frombuffer(bytearray(padded), dtype=torch.uint8))
        return [json.loads(text.numpy().tobytes()) for text in texts]

    def broadcast(self, message: Any) -> Any:
        """The first process's message, on every process; small ones only, because it is gathered."""
        return self.gather(message if self.is_leader else None)[0]

    def together(self, action: Callable[[], T]) -> T:
        """Run an action that may fail on some processes: then all of them fail at once, and the first says why."""
        if self.size == 1:
            return action()
        result, failure = None, None
        try:
            result = action()
        except Exception as error:
            failure = error
        faults = self.gather("" if failure is None else _in_words(failure))
        if not any(faults):
            return cast(T, result)
        if failure is not None and not isinstance(failure, TandemError | OSError):
            # A fault of the program's: the traceback belongs to this process.
            ignore_sigterm()
            raise failure
        said = [(rank, self.host_names[self.host_of(rank)], fault) for rank, fault in enumerate(faults)]
        raise self.shared_error(combined_fault(said)) from failure

    def shared_error(self, message: str) -> TandemError:
        """The error to raise for what all processes find alike: the first one tells the user, the others just end."""
        if self.size > 1:
            # A launcher ends all as soon as one has ended; the first process has yet to say why.
            ignore_sigterm()
        return TandemError(message) if self.is_leader else SaidElsewhereError(message)

    def lost_peer_error(self) -> LostPeerError:
        """The error to raise when a collective has failed for want of a peer: one process of each host names it."""
        assert self.liveness is not None, "a single process has no peers"
        words, speaks = self.liveness.explain()
        return (LostPeerError if speaks else LostPeerSaidElsewhereError)(words)

    def check_same(self, what: str, value: str) -> None:
        """Insist that all processes hold the same value; the hosts that do not are named."""
        values = self.gather(value)
        differing = {self.host_of(rank) for rank, other in enumerate(values) if other != values[0]}
        if differing:
            others = ", ".join(self.host_names[host] for host in sorted(differing))
            raise self.shared_error(
                f"{what} on {others} is not the one on {self.host_names[0]}; put the same on all hosts"
            )


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error_in_words(error)
    return str(error) if isinstance(error, TandemError) and str(error) else f"{type(error).__name__}: {error}"


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether an error is that of a connection to a process that has ended or cannot be reached any more."""
    # gloo has no exception of its own; its errors name its source files.
    return isinstance(error, dist.DistError) or "gloo" in str(error)


@contextmanager
def joined_world(settings: ClusterConfig | None = None, run: Path | None = None) -> Iterator[World]:
    """Join the processes that were started together to work on a run's directory, or stand alone.

    The process groups are never destroyed, because that can abort the process: it leaves through `end_process`.
    """
    mine = process_rank()
    device = local_device(mine.local_rank)
    if (threads := threads_of_task()) is not None:
        torch.set_num_threads(threads)
    if mine.size == 1:
        gpu = gpu_of(device)
        yield World(0, 1, device, host_names=(host_name(),), host_cards=() if gpu is None else (gpu.uuid,))
        return
    world = _join(settings or ClusterConfig(), mine, device, "" if run is None else str(run.resolve()))
    assert world.liveness is not None
    with world.liveness.watching():
        try:
            yield world
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
            lost = world.lost_peer_error()
            raise type(lost)(f"{lost}; {START_AGAIN}") from error


def _join(settings: ClusterConfig, mine: ProcessRank, device: torch.device, run: str) -> World:
    """Meet the others at the roll call, choose the interface, connect."""
    deadline = Deadline(settings.join_seconds)
    place = open_store(rendezvous(), mine, deadline)
    store, address, gpu = place.store.own_keys, place.address, gpu_of(device)
    me = Member(
        mine.rank,
        host_name(),
        host_identity(),
        interface_towards(address).address,
        package_version(),
        visible_gpus=gpu_count(),
        gpu=None if gpu is None else gpu.uuid,
        run=run,
    )
    roll = call_roll(place, me, mine.size, deadline, expected_hosts(), secret_token())
    interface = start_together(store, roll, me.rank, deadline, lambda: _choose_interface(settings, me, roll, address))
    try:
        _connect(PrefixStore("group", store), mine, interface, device, deadline)
    except RuntimeError as error:
        raise JoinError(
            f"{me.host} met the others but cannot exchange messages over {interface.name} ({interface.address}): "
            "a process has ended, a firewall is between, or another cluster.interface is needed"
        ) from error
    world = _world_of(roll, mine, device, interface)
    world.group.set_timeout(PEER_TIMEOUT)
    # Groups are made at the store, which ends with the process that serves it: nobody leaves before all have theirs.
    world.barrier()
    patience, address = settings.patience_seconds, interface.address
    liveness = Liveness(world.rank, world.hosts, world.host_names, patience, address, world.gather)
    return replace(world, liveness=liveness)


def _choose_interface(settings: ClusterConfig, me: Member, roll: Sequence[Member], meeting: str) -> Interface:
    """The interface that the user names, or the one on the route to the other hosts."""
    # Seen from the store's own host its name may stand for the loopback: that address is of no use to others.
    outside = [member for member in roll if member.identity != me.identity and not Interface("", member.address).local]
    if chosen := settings.interface or os.environ.get("GLOO_SOCKET_IFNAME"):
        interface = interface_named(chosen)
    else:
        interface = interface_towards(outside[0].address if outside else meeting)
    if outside and interface.local:
        raise TandemError(
            f"cluster.interface: {interface.name} of {me.host} leads to no other host; leave it empty, or name one "
            f"that reaches {outside[0].host}"
        )
    return interface


def _connect(store: Store, mine: ProcessRank, interface: Interface, device: torch.device, deadline: Deadline) -> None:
    """Make the process group over an interface, and exchange first messages, which show whether connections stand."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface.name
    # NCCL takes names for beginnings of names, unless told otherwise; what the user has set there stays.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface.name}")
    # NCCL's watchdog is to give up a broken communicator and leave the process alone: the next small message over gloo
    # fails at once, and what happened is said and written down. (By default it aborts the process.)
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=mine.rank,
        world_size=mine.size,
        timeout=timedelta(seconds=deadline.seconds),
    )
    dist.all_reduce(torch.zeros(1))
    if device.type == "cuda":
        message = torch.zeros(1, device=device)
        # NCCL connects within the first call, which may hang; over NCCL a call returns before anything has travelled,
        # and waiting for the device may hang, too. So a thread makes the call, and the message is asked after.
        thread = ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(device,))
        call = thread.submit(dist.all_reduce, message, async_op=True)
        thread.shutdown(wait=False)
        while not (call.done() and call.result().is_completed()):
            if not deadline.left:
                raise RuntimeError("NCCL's first message did not arrive")
            time.sleep(POLL_SECONDS)


def _world_of(roll: Sequence[Member], mine: ProcessRank, device: torch.device, interface: Interface) -> World:
    """The world of connected processes: its hosts, and a process group for each level."""
    ranks_by_host: dict[str, list[int]] = {}
    for member in roll:
        ranks_by_host.setdefault(member.identity, []).append(member.rank)
    hosts = list(ranks_by_host.values())
    leaders = [ranks[0] for ranks in hosts]
    # Every process takes part in making every group, its own or not.
    host_groups = [dist.new_group(ranks, timeout=PEER_TIMEOUT) if len(ranks) > 1 else None for ranks in hosts]
    leaders_group = dist.new_group(leaders, timeout=PEER_TIMEOUT) if len(hosts) > 1 else None
    here = next(number for number, ranks in enumerate(hosts) if mine.rank in ranks)
    return World(
        mine.rank,
        mine.size,
        device,
        hosts=tuple(map(tuple, hosts)),
        host_names=tuple(roll[rank].host for rank in leaders),
        host_cards=tuple(gpu for rank in hosts[here] if (gpu := roll[rank].gpu) is not None),
        interface=interface,
        host_group=host_groups[here],
        leaders_group=leaders_group if mine.rank in leaders else None,
    )
