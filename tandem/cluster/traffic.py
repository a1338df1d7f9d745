"""How many bytes each way of exchanging sends: arithmetic alone, so that a report may use it without PyTorch."""

from __future__ import annotations

# One scale for so many values of four bits: fine enough for a layer's bias beside its matrix, and only 2 bytes in 128.
VALUES_PER_SCALE = 256
# Bytes for a value of float32 in each number format; four bits share a scale of two bytes.
BYTES_A_VALUE = {"allreduce": 4.0, "bf16": 2.0, "int4": 0.5 + 2 / VALUES_PER_SCALE}


def ring_bytes(size: int, processes: int) -> int:
    """What each process sends in an all-reduce of so many bytes: the least that any way of summing needs."""
    return 2 * (processes - 1) * size // processes
