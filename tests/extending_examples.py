"""The examples of docs/extending.md, as files."""

from __future__ import annotations

import re
from pathlib import Path

from tests.places import REPOSITORY

EXAMPLE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


def write_examples(directory: Path) -> None:
    """Write every example under its own name."""
    text = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")
    for name, code in EXAMPLE.findall(text):
        (directory / name).write_text(code, encoding="utf-8")
