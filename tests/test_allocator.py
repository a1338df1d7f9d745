"""The C library's allocator gives back what is free, or keeps it, as a program needs it."""

from __future__ import annotations

import ctypes
import platform
import resource
import subprocess
import sys

import psutil
import pytest

from tandem.allocator import LARGEST_BLOCK, SERVER_LARGE_BLOCK, limit_heaps, release_free_memory

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


MEASURE = """
import resource, sys
import torch
from tandem import allocator
getattr(allocator, sys.argv[1])()
def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 22)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
# The least of some: now and then a small block comes to lie in the place of a large one, which then moves on.
print(min(faults_of_a_step() for _ in range(6)))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc hands large blocks back at once")
@pytest.mark.parametrize("settings", ["keep_free_memory", "limit_heaps"])
def test_trainings_and_servers_use_their_memory_again(settings: str) -> None:
    """By the pages that the system has to give anew when eight tensors of 16 MB have come and gone."""
    measured = subprocess.run([sys.executable, "-c", MEASURE, settings], capture_output=True, check=True)
    pages = 8 * 4 * (1 << 22) // resource.getpagesize()
    assert int(measured.stdout) < pages / 100
    assert LARGEST_BLOCK > SERVER_LARGE_BLOCK > 4 * (1 << 22)
