"""Real file systems that are too small for what a test wants to put there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of some size, as mount writes sizes, for the length of a block; without the right to mount, a skip."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        # Lazily: a process that was killed may still hold a file there for a moment.
        subprocess.run(["umount", "--lazy", place], check=True)
