"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which gets its name when all of it is on the disk; after a failure nothing is left."""
    # One writer a file, so the name may be fixed: what a killed one left is written over.
    partial = path.with_name(f".{path.name}.writing")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file, whole."""
    with whole_file(path) as file:
        file.write(content)
