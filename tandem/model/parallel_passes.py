"""Passes in parallel: the cores of a processor work on batches of their own.

Threads that share the work on one batch meet after every operation, hundreds of times a second: small ones do not
scale, and whenever another program takes a core away for a moment, all wait for the one that was moved aside. Passes
in parallel meet when each is done. In training each has a model of its own, on shared weights, and its own random
numbers; the gradients are added in the order of the micro-batches, so the sum is rounded as one after the other. (Only
products may round otherwise in another number of threads, which each pass has fewer of.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from tandem.model.layers import RANDOM_NUMBERS

T = TypeVar("T")


class ParallelPasses:
    """Runs passes in parallel, the first in the calling thread, and shares the process's threads out among them."""

    def __init__(self, most: int) -> None:
        self._others = ThreadPoolExecutor(max(most - 1, 1), "pass")

    def run(self, passes: Sequence[Callable[[], T]], seeds: Sequence[int]) -> list[T]:
        """The results, in order; each pass draws random numbers, if any, from a seed of its own."""
        if len(passes) == 1:
            torch.manual_seed(seeds[0])
            return [passes[0]()]
        threads = torch.get_num_threads()
        each = max(threads // len(passes), 1)
        waiting = [
            self._others.submit(_run, one_pass, seed, each)
            for one_pass, seed in zip(passes[1:], seeds[1:], strict=True)
        ]
        try:
            first = _run(passes[0], seeds[0], each)
        finally:
            # Nothing may go on by itself, whatever has happened here.
            wait(waiting)
            torch.set_num_threads(threads)
        return [first, *(other.result() for other in waiting)]


def _run(one_pass: Callable[[], T], seed: int, threads: int) -> T:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with _random_numbers(seed):
        return one_pass()


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    RANDOM_NUMBERS.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        RANDOM_NUMBERS.generator = None
