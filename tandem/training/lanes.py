"""Lanes: the cores of a processor work on micro-batches of their own, side by side.

Threads that share the work on one micro-batch meet after every operation, hundreds of times a second: small ones do not
scale, and whenever another program takes a core away for a moment, all wait for the one that was moved aside. Lanes
meet once, when their gradients are added up. Each has a model of its own, on shared weights, and its own random
numbers; the gradients are added in the order of the micro-batches, so the sum is rounded as without lanes. (Only
products may round otherwise in another number of threads, which a lane has fewer of.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import psutil
import torch

from tandem.config import Config
from tandem.model.layers import RANDOM_NUMBERS
from tandem.model.memory_estimate import estimate_memory, is_estimated
from tandem.model.translation_model import TranslationModel

T = TypeVar("T")
# Of a host's memory, for what lanes hold: there may be other programs, and other processes of the run.
MEMORY_SHARE = 0.5


def lanes_for(model: TranslationModel, config: Config) -> int:
    """How many micro-batches are worked through side by side: one on a GPU, which has threads enough by itself."""
    # Compiled layers draw from PyTorch's own generator, which all threads share.
    if model.device.type != "cpu" or not model.draws_by_thread or config.model.compile == "on":
        return 1
    tokens = config.batch.tokens
    assert tokens != "auto", "resolved at the start"
    lanes = range(1, min(torch.get_num_threads(), config.batch.micro_batches) + 1)
    if not is_estimated(config.model):
        return lanes[-1]
    # By all the memory that there is, not by what is free: a run that goes on must round as it did before.
    room = MEMORY_SHARE * psutil.virtual_memory().total
    needed = [estimate_memory(config.model, model.vocab_size, n * tokens, config.train.precision).total for n in lanes]
    return max(1, sum(each <= room for each in needed))


class Lanes:
    """Runs passes side by side, the first in the calling thread, and shares the process's threads out among them."""

    def __init__(self, lanes: int) -> None:
        self._others = ThreadPoolExecutor(lanes - 1, "lane") if lanes > 1 else None

    def run(self, passes: Sequence[Callable[[], T]], seeds: Sequence[int]) -> list[T]:
        """The results, in order; each pass draws random numbers from a seed of its own."""
        if len(passes) == 1 or self._others is None:
            torch.manual_seed(seeds[0])
            return [passes[0]()]
        threads = torch.get_num_threads()
        each = max(threads // len(passes), 1)
        waiting = [
            self._others.submit(_run, passed, seed, each) for passed, seed in zip(passes[1:], seeds[1:], strict=True)
        ]
        try:
            first = _run(passes[0], seeds[0], each)
        finally:
            # Nothing may go on by itself, whatever has happened here.
            wait(waiting)
            torch.set_num_threads(threads)
        return [first, *(other.result() for other in waiting)]


def _run(passed: Callable[[], T], seed: int, threads: int) -> T:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with _random_numbers(seed):
        return passed()


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    RANDOM_NUMBERS.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        RANDOM_NUMBERS.generator = None
