"""What in a folder would be read outside of it: checkpoints, exports and corpora also come from other people.

Such a folder lists its files by name, and an archive that it came in may have held links. Neither may lead out, nor to
a device or a pipe, which could be read for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def foreign_name(names: Iterable[str]) -> str | None:
    """The first of a folder's listed file names that does not lie inside it, with the reason; None if all do."""
    for name in names:
        # An empty part is what an absolute path begins with; some systems take a backslash for a slash.
        if {"", ".", ".."} & set(name.split("/")) or "\\" in name or "\0" in name:
            return f"it lists {name!r}, which is not a file in it"
    return None


def foreign_entry(folder: Path) -> str | None:
    """The first entry of a folder that is a link out of it or no file, with the reason; None if there is none.

    Links inside it, and a folder that is itself behind a link, are the user's own business.
    """
    inside = os.path.realpath(folder)
    for entry in sorted(folder.rglob("*")):
        shown = entry.relative_to(folder)
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(inside):
            return f"{shown} is a link that leads out of it; if you trust it, copy the folder with `cp -rL`"
        if entry.exists() and not entry.is_file() and not entry.is_dir():
            return f"{shown} is neither a file nor a folder"
    return None
