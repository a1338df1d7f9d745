"""A disk that fails when it is told to: a FUSE file system over a directory. Needs root and FUSE's library."""

from __future__ import annotations

import ctypes.util
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_not() -> str | None:
    """Why such a disk cannot be made here; None if it can."""
    if os.geteuid() or not Path("/dev/fuse").exists():
        return "a FUSE disk needs root and /dev/fuse"
    if ctypes.util.find_library("fuse3") is None and ctypes.util.find_library("fuse") is None:
        return "FUSE's library is missing: apt-get install libfuse2"
    return None


class FaultyDisk:
    """A mounted disk, and what fails on it."""

    def __init__(self, place: Path, control: Path) -> None:
        self.place, self._control = place, control

    def fail(self, call: str, error: int) -> None:
        """From now on this call fails."""
        self._control.write_text(f"{call} {errno.errorcode[error]}")

    def mend(self) -> None:
        self._control.write_text("")


@contextmanager
def faulty_disk(directory: Path) -> Iterator[FaultyDisk]:
    """A disk below a directory, for the length of a block."""
    root, place, control = directory / "root", directory / "mount", directory / "control"
    for path in (root, place):
        path.mkdir(parents=True)
    control.write_text("")
    command = [sys.executable, "-m", "testbed.faulty_disk_server", str(root), str(place), str(control)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            # The line comes from the mounted file system's own start.
            assert server.stdout.readline() == "mounted\n"
            yield FaultyDisk(place, control)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
            server.wait()
