"""Multiplies two matrices again and again: what a machine can do at most while others are measured on it.

    python -m testbed.matrix_products LOG --shape 4096 512 2048 --precision float32|bfloat16

LOG gains a line with the number of multiplications and additions for every product. The first matrix has as many rows
as the first number of the shape says; the second number is the side that the two share.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("log", type=Path)
    arguments.add_argument("--shape", type=int, nargs=3, required=True)
    arguments.add_argument("--precision", choices=["float32", "bfloat16"], required=True)
    options = arguments.parse_args()
    rows, inner, columns = options.shape
    dtype = getattr(torch, options.precision)
    left, right = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
    with options.log.open("w", buffering=1) as log:
        while True:
            left @ right
            log.write(f"{2 * rows * inner * columns}\n")


if __name__ == "__main__":
    main()
