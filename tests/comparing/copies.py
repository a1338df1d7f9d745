"""Runs copied and changed, because trained ones are shared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def copied_run(run: Path, to: Path, *, without: Sequence[str] = (), **facts: Any) -> Path:
    """A copy of a run without some of its parts, and with other facts in its run.json."""
    shutil.copytree(run, to, ignore=shutil.ignore_patterns(*without, "translations"))
    file = to / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))
    return to
