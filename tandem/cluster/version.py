"""Which Tandem this is, exactly: hosts that train together must run the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import tandem


@cache
def package_version() -> str:
    """Version and a digest of the source, because two checkouts may share a number, with that of PyTorch."""
    root = Path(tandem.__file__).parent
    source = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        source.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"tandem {tandem.__version__} (source {source.hexdigest()[:8]}), torch {version('torch').partition('+')[0]}"
