"""Journals as plain dictionaries, for tests and benches that look at single values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The records of one rank, oldest first; a torn line, left by a killed process, is passed over."""
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        yield record
