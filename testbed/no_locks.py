"""A library that, preloaded into a process, makes every file system one without locks, as some network ones are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = "#include <errno.h>\nint flock(int file, int operation) { errno = ENOLCK; return -1; }\n"


def build(directory: Path) -> Path | None:
    """Compile the library; None where there is no compiler. $LD_PRELOAD names it to a process."""
    if shutil.which("cc") is None:
        return None
    source, library = directory / "no_locks.c", directory / "no_locks.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
