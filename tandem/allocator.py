"""The C library's allocator: how many heaps it keeps, and when it gives memory back.

Two kinds of programs need opposite settings. glibc gives every thread a heap of its own and keeps what is freed in it:
after hours of texts of every length a server would hold what its largest batches once needed, several times. Large
blocks it hands back at once: a training, which needs the same ones at every step, would get them anew from the system
each time, page by page and filled with zeros. Other C libraries have neither the heaps nor these functions.
"""

from __future__ import annotations

import ctypes

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Two heaps do not slow down threads that compute far longer than they allocate.
SERVER_HEAPS = 2
# Blocks from this size on have no place in a heap and go back to the system at once. Left to itself glibc raises the
# size up to 32 MB, and heaps get holes that only another block of such a size could fill.
SERVER_LARGE_BLOCK = 1 << 20
# Threads that share a heap wait for each other at every tensor. The first heap grows without bound; the others are made
# of stretches of 64 MB, and what does not fit goes back to the system at once.
TRAINING_HEAPS = 4
# Larger than any tensor of activations; those of weights and of the optimizer are made once.
LARGEST_BLOCK = 1 << 30


def limit_heaps() -> None:
    """Let all threads share a few heaps, only those that are started afterwards, and keep large blocks out of them."""
    if mallopt := _function("mallopt"):
        mallopt(_M_ARENA_MAX, SERVER_HEAPS)
        mallopt(_M_MMAP_THRESHOLD, SERVER_LARGE_BLOCK)


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
