"""Checks of NCCL between the cards: the collectives that exchanges are made of, and the rate of an all-reduce."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.exchange.link_probe import slowest_seconds
from tandem.cluster.exchange.traffic import ring_bytes
from tandem.cluster.world import World
from tandem.doctor.self_test.check_result import Outcome
from tandem.doctor.self_test.check_setup import Setup

# Gradients are summed in float32; what travels in fewer bits goes as bytes; bfloat16 for whoever changes that.
REDUCED = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
MOVED = {torch.float32: "float32", torch.uint8: "uint8"}
# Values in a message: not a multiple of anything that NCCL cuts messages into.
VALUES = 1000
ALONE = "one process has nobody to send messages to"
BANDWIDTH_BYTES = 64 * 10**6
FEWEST_SUMS, MOST_SUMS = 3, 100


def collectives(setup: Setup) -> Outcome:
    """Every collective that exchanges use gives the right values."""
    world = setup.world
    if world.size == 1:
        return Outcome.not_applicable(ALONE)
    right = dict(_collectives(world))
    wrong = [name for name, is_right in right.items() if not is_right]
    found = f"wrong results of {', '.join(wrong)}" if wrong else f"{len(right)} collectives gave what they should"
    return Outcome.of(not wrong, found, right=right)


def _collectives(world: World) -> Iterator[tuple[str, bool]]:
    """Name of each collective with its number format, and whether its result is right here."""
    mine, others = world.rank + 1, [rank for rank in range(world.size) if rank != world.rank]
    numbers = list(range(1, world.size + 1))
    for dtype, name in REDUCED.items():
        summed = _rows(world, [mine], dtype)
        dist.all_reduce(summed)
        yield f"all_reduce of {name}", torch.equal(summed, _rows(world, [sum(numbers)], dtype))
    for dtype, name in MOVED.items():
        told = _rows(world, [mine], dtype)
        dist.broadcast(told, 0)
        yield f"broadcast of {name}", torch.equal(told, _rows(world, [1], dtype))
        gathered = _rows(world, [0] * world.size, dtype)
        dist.all_gather_single(gathered, _rows(world, [mine], dtype))
        yield f"all_gather of {name}", torch.equal(gathered, _rows(world, numbers, dtype))
        # Every process gets from each other one a row that names both, and none from itself, as sums of halves do.
        sizes = [int(rank != world.rank) for rank in range(world.size)]
        arrived = _rows(world, [0] * len(others), dtype)
        dist.all_to_all_single(arrived, _rows(world, [2 * world.rank + other for other in others], dtype), sizes, sizes)
        expected = _rows(world, [2 * other + world.rank for other in others], dtype)
        yield f"all_to_all of {name}", torch.equal(arrived, expected)


def _rows(world: World, numbers: list[int], dtype: torch.dtype) -> Tensor:
    """A row of equal values for each number."""
    return torch.tensor(numbers, dtype=dtype, device=world.device).repeat_interleave(VALUES).view(-1, VALUES)


def bandwidth(setup: Setup) -> Outcome:
    """An all-reduce of 64 MB comes back."""
    world = setup.world
    if world.size == 1:
        return Outcome.not_applicable(ALONE)
    vector = torch.ones(BANDWIDTH_BYTES // 4, device=world.device)
    # Values have to stay finite however often they are summed.
    timed = partial(slowest_seconds, world, lambda: dist.all_reduce(vector.fill_(1.0)))
    timed()
    count = min(max(int(setup.seconds / timed()), FEWEST_SUMS), MOST_SUMS)
    seconds = statistics.mean(timed() for _ in range(count))
    rate = ring_bytes(BANDWIDTH_BYTES, world.size) / seconds / 1e9
    return Outcome.of(
        True,
        f"64 MB are summed over {world.size} cards in {seconds * 1000:.3g} ms, each sending {rate:.3g} GB/s",
        sent_bytes_per_second=rate * 1e9,
        sum_seconds=seconds,
        hosts=len(world.hosts),
    )
