"""The C library's allocator: how many heaps it keeps, and when it gives memory back.

glibc gives every thread a heap of its own and keeps what is freed: after hours of texts of every length a server would
hold what its largest batches once needed, several times. Other C libraries have neither the heaps nor these functions.
"""

from __future__ import annotations

import ctypes

# Two heaps do not slow down threads that compute far longer than they allocate.
HEAPS = 2
_M_ARENA_MAX = -8  # of malloc.h


def limit_heaps() -> None:
    """Let all threads share a few heaps; only those that are started afterwards."""
    if mallopt := _function("mallopt"):
        mallopt(_M_ARENA_MAX, HEAPS)


def release_free_memory() -> None:
    """Hand free memory back to the system, which takes some milliseconds."""
    if malloc_trim := _function("malloc_trim"):
        malloc_trim(0)


def _function(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None)
