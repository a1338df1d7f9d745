"""The exact version of the package, which hosts that train together must share."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import tandem


@cache
def package_version() -> str:
    """The package's version with a digest of its source, because two checkouts may share a number, and PyTorch's."""
    root = Path(tandem.__file__).parent
    source = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        source.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"tandem {tandem.__version__} (source {source.hexdigest()[:8]}), torch {version('torch').partition('+')[0]}"
