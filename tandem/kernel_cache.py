"""How many compiled kernels oneDNN keeps for the products of half-precision matrices.

It compiles a kernel for every new shape, and shapes vary from micro-batch to micro-batch. By default the last thousand
stay, of half a megabyte each, in two caches: more memory than the training of a small model needs by itself, and no
faster, because most shapes do not come back for long. Worth keeping are those of the layer at hand, which the next
layer has, too, and of the commonest numbers of rows.
"""

from __future__ import annotations

import os

# The primitives themselves, and PyTorch's own table of what they were made from. Both are read when the first is made.
CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
# A decoder layer has 10 different products forward and 20 backward; as many again are kept of other numbers of rows,
# which come back (see `flatten_rows`).
LAYER_KERNELS = 64
# What each keeps if nobody says anything.
DEFAULT_KERNELS = 1024


def limit_kernel_cache(passes: int) -> None:
    """Keep a layer's kernels for so many passes in parallel, unless the user's environment says otherwise."""
    for name in CAPACITIES:
        os.environ.setdefault(name, str(min(passes * LAYER_KERNELS, DEFAULT_KERNELS)))
