"""The C library's allocator: how many heaps it keeps, and when it gives memory back.

Large blocks glibc hands back at once: a training, which needs the same ones at every step, and a server, whose search
needs the same ones at every piece, would get them anew from the system each time, page by page and filled with zeros.
What is smaller it keeps, in a heap of its own for every thread: after hours of texts of every length a server would
hold what its largest batches once needed, several times. So a server has few heaps, and empties them when it is idle.
Other C libraries have neither the heaps nor these functions.
"""

from __future__ import annotations

import ctypes

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# One does not slow down threads that compute far longer than they allocate, and only of the first heap glibc hands back
# the end when it is asked to.
SERVER_HEAPS = 1
# Blocks from this size on have no place in a heap and go back to the system at once; glibc allows no larger size. The
# scores of a batch's next pieces are 5 MB for 32 sentences with a beam of 5 and 8,000 pieces.
SERVER_LARGE_BLOCK = 32 << 20
# Free memory at the end of a heap that is kept for the next piece, until the server is idle.
SERVER_KEPT = 64 << 20
# Threads that share a heap wait for each other at every tensor. The first heap grows without bound; the others are made
# of stretches of 64 MB, and what does not fit goes back to the system at once.
TRAINING_HEAPS = 4
# Larger than any tensor of activations; those of weights and of the optimizer are made once.
LARGEST_BLOCK = 1 << 30


def limit_heaps() -> None:
    """Let all threads share a few heaps, only those that are started afterwards, and keep what is freed for a while."""
    if mallopt := _function("mallopt"):
        mallopt(_M_ARENA_MAX, SERVER_HEAPS)
        mallopt(_M_MMAP_THRESHOLD, SERVER_LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, SERVER_KEPT)


def release_free_memory() -> None:
    """Hand free memory back to the system, which takes some milliseconds."""
    if malloc_trim := _function("malloc_trim"):
        malloc_trim(0)


def keep_free_memory() -> None:
    """Use free memory again, large blocks too, instead of handing it back to the system."""
    if mallopt := _function("mallopt"):
        mallopt(_M_ARENA_MAX, TRAINING_HEAPS)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, LARGEST_BLOCK)


def _function(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None)
