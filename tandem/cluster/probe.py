"""What summing over the network between the hosts costs, found out by doing it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.exchange import SumMaker
from tandem.cluster.instants import finish
from tandem.cluster.sums import BFloat16Sum, FourBitSum, LowRankSum, TwoHalves
from tandem.cluster.traffic import VALUES_PER_SCALE, ring_bytes
from tandem.cluster.world import World

# The ways of summing between hosts whose vectors travel in another number format.
TWO_HALVES: Mapping[str, type[TwoHalves]] = {"bf16": BFloat16Sum, "int4": FourBitSum}
# Lengths grow from this, so that neither a slow nor a fast link is measured for long: a rate limiter's bucket, often
# some hundred kB, must be emptied before a difference between two lengths shows the rate behind it.
FIRST_VALUES, GROWTH = 1 << 16, 4
ROUND_TRIPS = 5
# A sum that is short against what is left of the budget is repeated, because the first has cold buffers.
MOST_REPEATS, CHEAP_SHARE = 5, 0.15
# What was sent, what arrives, and what comes back are each decoded once; each is at most the whole vector.
DECODINGS = 3
# PyTorch's PowerSGD sums its very first two vectors whole; a sum that has seen two is at its usual work.
STEPS_BEFORE_LOW_RANK = 2


@dataclass(frozen=True)
class Link:
    """The network between hosts, as all-reduces see it."""

    bytes_per_second: float
    """Sent by each host while it receives as much."""
    latency: float
    """Seconds of an exchange of almost nothing."""


@dataclass(frozen=True)
class Curve:
    """How long a sum took at growing lengths."""

    points: tuple[tuple[int, float], ...]
    """Length of the vector and seconds, shortest vector first."""

    def seconds(self, values: int) -> float:
        """At any length: on the line between two measured lengths, or beyond the last on that of the last two."""
        if len(self.points) == 1:
            return self.points[0][1] * max(values / self.points[0][0], 1.0)
        after = next((place for place, (length, _) in enumerate(self.points) if length >= values), len(self.points) - 1)
        (short, little), (long, much) = self.points[max(after, 1) - 1 : max(after, 1) + 1]
        # Noise may have a longer vector take less time; it is never predicted to.
        a_value = max(much - little, 0.0) / (long - short)
        return max(little + (values - short) * a_value, min(seconds for _, seconds in self.points))


@dataclass(frozen=True)
class Sums:
    """What summing costs between the hosts of a run."""

    link: Link
    curves: Mapping[str, Curve]
    """By way of summing."""
    coding: Mapping[str, float]
    """Seconds of rounding and back in one sum of the whole vector, which no network makes shorter."""

    def seconds(self, values: int) -> dict[str, float]:
        """Of one sum of so many values, by way of summing."""
        return {kind: curve.seconds(values) for kind, curve in self.curves.items()}


def measure_sums(world: World, values: int, budget: float) -> Sums:
    """Sum vectors up to the gradient's length in every way that a run chooses from; all processes get the same answer.

    Each way may use up `budget` seconds, or a little more; what would take longer is worked out from shorter vectors.
    """
    latency = min(_seconds(world, lambda: world.meet()) for _ in range(ROUND_TRIPS))

    def all_reduce(_: int) -> Callable[[Tensor], None]:
        return lambda vector: dist.all_reduce(vector)

    curves = {"allreduce": _curve(world, values, budget, all_reduce)}
    coding = {}
    if len(world.hosts) > 1:
        for kind, way in TWO_HALVES.items():
            curves[kind] = _curve(world, values, budget, _between_hosts(world, way))
            coding[kind] = _coding_seconds(world, values, way)
    return Sums(Link(_bytes_per_second(curves["allreduce"], world.size), latency), curves, coding)


def measure_low_rank(world: World, shapes: Sequence[torch.Size], rank: int) -> float:
    """Seconds of one sum of a gradient of these shapes as two thin factors of every matrix, which is short to send."""
    values = sum(shape.numel() for shape in shapes)

    def low_rank(group: dist.ProcessGroup) -> LowRankSum:
        adder = LowRankSum(group, shapes, rank, world.device)
        adder.restore({"steps": torch.tensor(STEPS_BEFORE_LOW_RANK)})
        return adder

    sum_ = _summed_by_hosts(world, low_rank)
    # The first one makes its buffers.
    return min(_exchange_seconds(world, values, sum_) for _ in range(2))


def _between_hosts(world: World, way: type[TwoHalves]) -> Callable[[int], Callable[[Tensor], None]]:
    return lambda length: _summed_by_hosts(world, lambda group: way(group, length, world.device))


def _summed_by_hosts(world: World, make_sum: SumMaker) -> Callable[[Tensor], None]:
    """What a step does with a gradient that each host has summed inside."""
    adder = make_sum(world.between) if world.between is not None else None

    def sum_(vector: Tensor) -> None:
        if adder is not None:
            adder.sum_(vector)
        world.pass_on_inside(vector)

    return sum_


def _curve(world: World, values: int, budget: float, make_sum: Callable[[int], Callable[[Tensor], None]]) -> Curve:
    """Sum longer and longer vectors while there is time, the whole one as soon as that is affordable."""
    points: list[tuple[int, float]] = []
    length, spent = min(FIRST_VALUES, values), 0.0
    while True:
        sum_ = make_sum(length)
        taken = [_exchange_seconds(world, length, sum_)]
        while len(taken) < MOST_REPEATS and taken[-1] < CHEAP_SHARE * (budget - spent - sum(taken)):
            taken.append(_exchange_seconds(world, length, sum_))
        spent += sum(taken)
        points.append((length, statistics.median(taken[1:] or taken)))
        curve = Curve(tuple(points))
        if length == values or spent >= budget:
            return curve
        longer = min(GROWTH * length, values)
        # A line needs a second point, whatever it takes.
        if len(points) > 1 and spent + curve.seconds(longer) > budget:
            return curve
        length = values if len(points) > 1 and spent + curve.seconds(values) < budget else longer


def _exchange_seconds(world: World, length: int, sum_: Callable[[Tensor], None]) -> float:
    """What one sum takes."""
    gradient = torch.ones(length, device=world.device)
    return _seconds(world, lambda: sum_(gradient))


def _seconds(world: World, action: Callable[[], None]) -> float:
    """The longest that any process took, all having begun together; they must agree on when to stop measuring."""
    world.meet()
    finish(world.device)
    start = time.perf_counter()
    action()
    finish(world.device)
    return world.largest(time.perf_counter() - start)


def _bytes_per_second(curve: Curve, processes: int) -> float:
    """The rate at which a vector grows, so that neither latency nor a rate limiter's bucket counts."""
    (short, little), (long, much) = curve.points[-2:] if len(curve.points) > 1 else ((0, 0.0), curve.points[0])
    if much <= little:
        short, little = 0, 0.0
    return ring_bytes(4 * (long - short), processes) / (much - little)


def _coding_seconds(world: World, values: int, way: type[TwoHalves]) -> float:
    """Seconds in which a process turns a gradient into fewer bits and back, as often as one sum over hosts does."""
    seconds = 0.0
    if world.between is not None:
        adder = way(world.between, values, world.device)
        rows = torch.ones(1, -(-values // VALUES_PER_SCALE) * VALUES_PER_SCALE, device=world.device)
        adder.decode(adder.encode(rows))
        finish(world.device)
        start = time.perf_counter()
        encoded = adder.encode(rows)
        for _ in range(DECODINGS):
            adder.decode(encoded)
        finish(world.device)
        seconds = time.perf_counter() - start
    return world.largest(seconds)
