"""The C library's allocator gives back what is free, also where something in use lies above it."""

from __future__ import annotations

import ctypes
import platform

import psutil
import pytest

from tandem.serving.allocator import limit_heaps, release_free_memory

BLOCKS, BLOCK = 100_000, 1_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_free_memory_goes_back_to_the_system() -> None:
    limit_heaps()
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    before = psutil.Process().memory_info().rss
    release_free_memory()
    assert before - psutil.Process().memory_info().rss > BLOCKS * BLOCK / 2
    libc.free(blocks[-1])
