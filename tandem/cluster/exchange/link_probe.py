"""Measures the network between hosts: the time that sums of a gradient take by each strategy, latency and rate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.exchange.choose_strategy import Link
from tandem.cluster.exchange.strategy import Shapes, Strategy, sum_between_hosts, values_in
from tandem.cluster.exchange.traffic import BASELINE, VALUES_PER_SCALE, ring_bytes
from tandem.cluster.exchange.vector_sum import CompressedSum
from tandem.cluster.world import World
from tandem.config import ExchangeConfig
from tandem.model.memory_estimate import FLOAT32
from tandem.monitor.device_clock import synchronize

# Lengths grow from this, so that neither a slow nor a fast link is measured for long: a rate limiter's bucket, often
# some hundred kB, must be emptied before a difference between two lengths shows the rate behind it.
FIRST_VALUES, GROWTH = 1 << 16, 4
ROUND_TRIPS = 5
# A sum that is short against what is left of the budget is repeated, because the first has cold buffers.
MOST_REPEATS, CHEAP_SHARE = 5, 0.15
# What was sent, what arrives, and what comes back are each decoded once; each is at most the whole vector.
DECODINGS = 3

VectorFunction = Callable[[Tensor], object]


@dataclass(frozen=True)
class SumTimes:
    """Seconds that a sum took at growing lengths of the vector."""

    points: tuple[tuple[int, float], ...]
    """Length of the vector and seconds, shortest vector first."""

    def seconds(self, values: int) -> float:
        """Seconds at any length, on the line through the two nearest measured lengths."""
        if len(self.points) == 1:
            return self.points[0][1] * max(values / self.points[0][0], 1.0)
        after = next((place for place, (length, _) in enumerate(self.points) if length >= values), len(self.points) - 1)
        (short, little), (long, much) = self.points[max(after, 1) - 1 : max(after, 1) + 1]
        # Noise may have a longer vector take less time; it is never predicted to.
        a_value = max(much - little, 0.0) / (long - short)
        return max(little + (values - short) * a_value, min(seconds for _, seconds in self.points))


@dataclass(frozen=True)
class SumCosts:
    """What summing costs between the hosts of a run, by strategy."""

    link: Link
    times: Mapping[str, SumTimes]
    coding: Mapping[str, float]
    """Seconds of encoding and decoding in one sum of the whole vector, which no network makes shorter."""

    def seconds(self, values: int) -> dict[str, float]:
        """Seconds of one sum of so many values by strategy."""
        return {kind: times.seconds(values) for kind, times in self.times.items()}


def measure_sums(
    world: World, shapes: Shapes, settings: ExchangeConfig, strategies: Sequence[Strategy], budget: float
) -> SumCosts:
    """Time sums of vectors up to the gradient's length by each strategy; all processes get the same answer.

    Each may use up `budget` seconds, or a little more; what would take longer is worked out from shorter vectors.
    """
    latency = min(slowest_seconds(world, world.barrier) for _ in range(ROUND_TRIPS))
    values = values_in(shapes)
    times = {BASELINE: _times(world, values, budget, lambda shapes: dist.all_reduce)}
    coding = {}
    for strategy in strategies if len(world.hosts) > 1 else ():
        if strategy.name == BASELINE or strategy.sums_like(settings) is not strategy:
            continue
        if not strategy.grows_with_length:
            sum_ = _summed_by_hosts(world, strategy, settings, shapes)
            # The first one makes its buffers.
            times[strategy.name] = SumTimes(((values, min(_exchange_seconds(world, values, sum_) for _ in range(2))),))
            continue
        by_hosts = partial(_summed_by_hosts, world, strategy, settings)
        times[strategy.name] = _times(world, values, budget, by_hosts)
        coding[strategy.name] = _coding_seconds(world, strategy, settings, values)
    return SumCosts(Link(_bytes_per_second(times[BASELINE], world.size), latency), times, coding)


def _summed_by_hosts(world: World, strategy: Strategy, settings: ExchangeConfig, shapes: Shapes) -> VectorFunction:
    """What a step does with a gradient that each host has summed inside."""
    adder = sum_between_hosts(strategy, settings, shapes, world)
    if adder is not None:
        adder.skip_warm_up()

    def sum_(vector: Tensor) -> None:
        if adder is not None:
            adder.sum_(vector)
        world.broadcast_in_host(vector)

    return sum_


def _times(world: World, values: int, budget: float, make_sum: Callable[[Shapes], VectorFunction]) -> SumTimes:
    """Sum longer and longer vectors while there is time, the whole one as soon as that is affordable."""
    points: list[tuple[int, float]] = []
    length, spent = min(FIRST_VALUES, values), 0.0
    while True:
        sum_ = make_sum([(length,)])
        taken = [_exchange_seconds(world, length, sum_)]
        while len(taken) < MOST_REPEATS and taken[-1] < CHEAP_SHARE * (budget - spent - sum(taken)):
            taken.append(_exchange_seconds(world, length, sum_))
        spent += sum(taken)
        points.append((length, statistics.median(taken[1:] or taken)))
        times = SumTimes(tuple(points))
        if length == values or spent >= budget:
            return times
        longer = min(GROWTH * length, values)
        # A line needs a second point, whatever it takes.
        if len(points) > 1 and spent + times.seconds(longer) > budget:
            return times
        length = values if len(points) > 1 and spent + times.seconds(values) < budget else longer


def _exchange_seconds(world: World, length: int, sum_: VectorFunction) -> float:
    """Seconds of one sum of a vector of ones."""
    gradient = torch.ones(length, device=world.device)
    return slowest_seconds(world, lambda: sum_(gradient))


def slowest_seconds(world: World, action: Callable[[], object]) -> float:
    """Seconds of the slowest process, all having begun together; all processes get the same answer."""
    world.barrier()
    synchronize(world.device)
    start = time.perf_counter()
    action()
    synchronize(world.device)
    return world.largest(time.perf_counter() - start)


def _bytes_per_second(times: SumTimes, processes: int) -> float:
    """The rate at which a vector grows, so that neither latency nor a rate limiter's bucket counts."""
    (short, little), (long, much) = times.points[-2:] if len(times.points) > 1 else ((0, 0.0), times.points[0])
    if much <= little:
        short, little = 0, 0.0
    return ring_bytes(FLOAT32 * (long - short), processes) / (much - little)


def _coding_seconds(world: World, strategy: Strategy, settings: ExchangeConfig, values: int) -> float:
    """Seconds in which a process encodes and decodes a gradient as often as one sum over hosts does."""
    adder = sum_between_hosts(strategy, settings, [(values,)], world)
    rows = torch.ones(1, -(-values // VALUES_PER_SCALE) * VALUES_PER_SCALE, device=world.device)

    def code() -> None:
        if isinstance(adder, CompressedSum):
            encoded = adder.encode(rows)
            for _ in range(DECODINGS):
                adder.decode(encoded)

    code()
    return slowest_seconds(world, code)
