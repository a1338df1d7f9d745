"""Figures of exchanges that need no PyTorch: names, sizes and the bytes that an all-reduce sends."""

from __future__ import annotations

BASELINE = "allreduce"
"""The strategy that others are compared with, and the only one inside a single host."""
# One scale for so many values of four bits: fine enough for a layer's bias beside its matrix, and only 2 bytes in 128.
VALUES_PER_SCALE = 256
# One plain all-reduce in so many is taken apart into waiting and sending: often enough for every log line,
# seldom enough that the overlap it gives up does not show.
SAMPLED_EVERY = 8


def ring_bytes(size: int, processes: int) -> int:
    """Bytes that each process sends in an all-reduce of a vector: the least that any way of summing needs."""
    return 2 * (processes - 1) * size // processes
