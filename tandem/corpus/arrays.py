"""NumPy arrays on the disk, whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tandem.files import whole_file


def write_array(path: Path, values: NDArray[Any]) -> None:
    """Store an array as an .npy file."""
    with whole_file(path) as file:
        write_header(file, values.dtype, values.shape)
        # Not by NumPy, whose error for a full disk does not say that the disk is full.
        file.write(np.ascontiguousarray(values).data)


def write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write what an .npy file begins with."""
    description = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": description, "fortran_order": False, "shape": shape})
