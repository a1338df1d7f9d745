"""Random orders that stay the same for ever."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# How many keys of a random order fall below a bound varies by half the root of their number at most. Eight times that
# is as good as never exceeded, and if it is, a wider look is taken.
_MARGIN = 4.0


def random_order(size: int, *seed: int) -> NDArray[np.intp]:
    """The numbers below `size` in an order that depends on the seed only."""
    return np.argsort(_keys(size, seed), kind="stable")


def stretch_of_random_order(start: int, end: int, size: int, *seed: int) -> NDArray[np.intp]:
    """`random_order(size, *seed)[start:end]`, without sorting all of it."""
    if size == 1:
        return np.zeros(end - start, np.intp)
    keys = _keys(size, seed)
    margin = _MARGIN * math.sqrt(size)
    while True:
        # The keys are spread evenly over 64 bits, so it is almost known where those of these places lie.
        low, high = (min(int(max(place, 0) / size * 2**64), 2**64 - 1) for place in (start - margin, end + margin))
        near = np.flatnonzero((keys >= low) & (keys <= high))
        before = int(np.count_nonzero(keys < low))
        if before <= start and end <= before + len(near):
            return near[np.argsort(keys[near], kind="stable")][start - before : end - before]
        margin = 2 * margin + 1


def _keys(size: int, seed: tuple[int, ...]) -> NDArray[np.uint64]:
    # NumPy promises the raw stream of a bit generator for ever, but not what permutation() makes of it.
    return np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size)
