"""What a newcomer has before the first command of a page: a checkout after `make install`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.places import REPOSITORY


def make_checkout(directory: Path) -> None:
    """Fill a directory with the Makefile and what it needs to find everything installed, as links to those here."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "tandem"):
        (directory / name).symlink_to(REPOSITORY / name)
    (directory / ".venv").symlink_to(sys.prefix)
    if not (directory / ".venv/.installed").exists():
        pytest.skip("not installed by the Makefile, so make would install again")
