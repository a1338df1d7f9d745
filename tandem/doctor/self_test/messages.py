"""NCCL between the cards: the collectives that exchanges are made of, and the rate of an all-reduce."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.instants import finish
from tandem.cluster.traffic import ring_bytes
from tandem.cluster.world import World
from tandem.doctor.self_test.result import Outcome
from tandem.doctor.self_test.setup import Setup

# Gradients are summed in float32; what travels in fewer bits goes as bytes; bfloat16 for whoever changes that.
REDUCED, MOVED = (torch.float32, torch.bfloat16), (torch.float32, torch.uint8)
VALUES = 1000
"""Values from each process: not a multiple of anything that NCCL cuts messages into."""
BANDWIDTH_BYTES = 64 * 10**6
FEWEST_SUMS, MOST_SUMS = 3, 100


def collectives(setup: Setup) -> Outcome:
    """Whether each collective gives every process what it should."""
    world = setup.world
    if world.size == 1:
        return Outcome.not_applicable("one process has nobody to send messages to")
    right = dict(_collectives(world))
    wrong = [name for name, is_right in right.items() if not is_right]
    found = f"wrong results of {', '.join(wrong)}" if wrong else f"{len(right)} collectives gave what they should"
    return Outcome.of(not wrong, found, right=right)


def _collectives(world: World) -> Iterator[tuple[str, bool]]:
    """Name of each collective with its number format, and whether its result is right here."""
    ranks = range(world.size)
    for dtype in REDUCED:
        summed = _of_rank(world, world.rank, dtype)
        dist.all_reduce(summed)
        yield _name("all_reduce", dtype), _is(summed, sum(rank + 1 for rank in ranks))
    for dtype in MOVED:
        told = _of_rank(world, world.rank, dtype)
        dist.broadcast(told, 0)
        yield _name("broadcast", dtype), _is(told, 1)
        gathered = torch.zeros(world.size, VALUES, dtype=dtype, device=world.device)
        dist.all_gather_single(gathered, _of_rank(world, world.rank, dtype).unsqueeze(0))
        yield _name("all_gather", dtype), all(_is(row, rank + 1) for rank, row in zip(ranks, gathered, strict=True))
        # Every process gets from each other one a row that names both, and none from itself, as sums of halves do.
        sizes = [int(rank != world.rank) for rank in ranks]
        others = [rank for rank in ranks if rank != world.rank]
        sent = torch.stack([_of_rank(world, 2 * world.rank + other, dtype) for other in others])
        arrived = torch.zeros_like(sent)
        dist.all_to_all_single(arrived, sent, sizes, sizes)
        right = all(_is(row, 2 * other + world.rank + 1) for other, row in zip(others, arrived, strict=True))
        yield _name("all_to_all", dtype), right


def _of_rank(world: World, number: int, dtype: torch.dtype) -> Tensor:
    return torch.full((VALUES,), number + 1, dtype=dtype, device=world.device)


def _is(found: Tensor, expected: int) -> bool:
    return bool((found == expected).all())


def _name(collective: str, dtype: torch.dtype) -> str:
    return f"{collective} of {str(dtype).removeprefix('torch.')}"


def bandwidth(setup: Setup) -> Outcome:
    """The rate at which each card sends in a ring that sums 64 MB."""
    world = setup.world
    if world.size == 1:
        return Outcome.not_applicable("one process has nobody to send messages to")
    vector = torch.ones(BANDWIDTH_BYTES // 4, device=world.device)
    _sum_seconds(world, vector, 1)
    count = min(max(int(setup.seconds / _sum_seconds(world, vector, 1)), FEWEST_SUMS), MOST_SUMS)
    seconds = _sum_seconds(world, vector, count) / count
    rate = ring_bytes(BANDWIDTH_BYTES, world.size) / seconds / 1e9
    return Outcome.of(
        True,
        f"64 MB are summed over {world.size} cards in {seconds * 1000:.3g} ms, each sending {rate:.3g} GB/s",
        sent_bytes_per_second=rate * 1e9,
        sum_seconds=seconds,
        hosts=len(world.hosts),
    )


def _sum_seconds(world: World, vector: Tensor, count: int) -> float:
    """The longest that any process took."""
    world.meet()
    start = time.perf_counter()
    for _ in range(count):
        # Values shall stay finite however often they are summed.
        vector.fill_(1.0)
        dist.all_reduce(vector)
    finish(world.device)
    return world.largest(time.perf_counter() - start)
