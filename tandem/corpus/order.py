"""Random orders that stay the same for ever."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_order(size: int, *seed: int) -> NDArray[np.intp]:
    """The numbers below `size` in an order that depends on the seed only."""
    # NumPy promises the raw stream of a bit generator for ever, but not what permutation() makes of it.
    return np.argsort(np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size), kind="stable")
