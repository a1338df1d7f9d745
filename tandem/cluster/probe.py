"""What the network between the hosts can do, found out by using it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tandem.cluster.network import ring_bytes
from tandem.cluster.sums import VALUES_PER_SCALE, FourBitSum
from tandem.cluster.world import World

# Messages grow from this until one takes long enough to be timed, so that neither a slow nor a fast link is
# measured for long: a rate limiter's bucket, often some hundred kB, must be emptied first.
FIRST_BYTES, MOST_BYTES = 1 << 18, 1 << 28
LONG_ENOUGH_SECONDS = 0.5
ROUND_TRIPS = 5
# What was sent, what arrives, and what comes back are each decoded once; each is at most the whole vector.
DECODINGS = 3


@dataclass(frozen=True)
class Link:
    """The network between hosts, as all-reduces see it."""

    bytes_per_second: float
    """Sent by each host while it receives as much."""
    latency: float
    """Seconds of an exchange of almost nothing."""


def measure_link(world: World) -> Link:
    """Time all-reduces between the hosts; every process gets the slowest host's answer."""
    latency, rate = 0.0, float("inf")
    if world.between is not None:
        group, hosts = world.between, world.between.size()
        latency = min(_all_reduce_seconds(group, 8, world.device) for _ in range(ROUND_TRIPS))
        size, seconds = FIRST_BYTES, 0.0
        while seconds < LONG_ENOUGH_SECONDS and size <= MOST_BYTES:
            seconds = _all_reduce_seconds(group, size, world.device)
            rate = ring_bytes(size, hosts) / max(seconds - latency, 1e-9)
            size *= 4
    # Everybody hears the slowest; who is not its host's first has measured nothing and does not count.
    latency = world.largest(latency)
    return Link(1 / world.largest(1 / rate), latency)


def measure_coding(values: int, world: World) -> float:
    """Seconds in which a process turns a gradient into four bits and back, as often as one sum over hosts does."""
    seconds = 0.0
    if world.between is not None:
        adder = FourBitSum(world.between, values, world.device)
        rows = torch.ones(1, -(-values // VALUES_PER_SCALE) * VALUES_PER_SCALE, device=world.device)
        adder.decode(adder.encode(rows))
        _finish(world.device)
        start = time.perf_counter()
        encoded = adder.encode(rows)
        for _ in range(DECODINGS):
            adder.decode(encoded)
        _finish(world.device)
        seconds = time.perf_counter() - start
    return world.largest(seconds)


def _all_reduce_seconds(group: dist.ProcessGroup, size: int, device: torch.device) -> float:
    message = torch.zeros(size // 4, device=device)
    # All hosts start together, and all know the longest time: they must agree on when to stop.
    dist.all_reduce(torch.zeros(1, device=device), group=group)
    _finish(device)
    start = time.perf_counter()
    dist.all_reduce(message, group=group)
    _finish(device)
    seconds = torch.tensor(time.perf_counter() - start, device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    return float(seconds)


def _finish(device: torch.device) -> None:
    """Let a GPU come to the end of its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
