"""A disk too small for what training tests want to put there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import small_disk


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for less than one checkpoint."""
    with small_disk(tmp_path / "disk", "200k") as disk:
        yield disk
