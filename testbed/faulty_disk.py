"""A disk that fails when it is told to: a FUSE file system over a directory. Needs root, libfuse2 and fusepy.

    python -m testbed.faulty_disk ROOT MOUNT CONTROL

The control file names the call that fails, and the error: `write EIO`, `fsync EIO`, `read EIO`, `write ENOSPC`,
`write EDQUOT`, `create EROFS`; empty, all is well.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def why_not() -> str | None:
    """Why such a disk cannot be made here; None if it can."""
    if os.geteuid() or not Path("/dev/fuse").exists():
        return "a FUSE disk needs root and /dev/fuse"
    if importlib.util.find_spec("fuse") is None:
        return "fusepy is missing: pip install fusepy"
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
    command = [sys.executable, "-m", "testbed.faulty_disk", str(root), str(place), str(control)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            # The line comes from the mounted file system's own start.
            assert server.stdout.readline() == "mounted\n"
            yield FaultyDisk(place, control)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
            server.wait()


def serve(root: str, mount: str, control: str) -> None:
    """Mount the file system, and serve it until it is unmounted."""
    from fuse import FUSE, FuseOSError, Operations

    class Passing(Operations):  # type: ignore[misc]
        """Every call goes to the directory below, unless it is to fail."""

        def __call__(self, name: str, path: str, *arguments: Any) -> Any:
            failing = Path(control).read_text().split()
            if failing and failing[0] == name:
                raise FuseOSError(getattr(errno, failing[1]))
            try:
                return getattr(self, name)(path, *arguments)
            except AttributeError:
                raise FuseOSError(errno.ENOSYS) from None
            except OSError as error:
                raise FuseOSError(error.errno) from error

        def init(self, path: str) -> None:
            print("mounted", flush=True)

        def getattr(self, path: str, handle: int | None = None) -> dict[str, Any]:
            found = os.lstat(root + path)
            names = ("atime", "ctime", "gid", "mode", "mtime", "nlink", "size", "uid")
            return {f"st_{name}": getattr(found, f"st_{name}") for name in names}

        def readdir(self, path: str, handle: int) -> list[str]:
            return [".", "..", *os.listdir(root + path)]

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(root + path, mode)

        def rmdir(self, path: str) -> None:
            os.rmdir(root + path)

        def unlink(self, path: str) -> None:
            os.unlink(root + path)

        def rename(self, old: str, new: str) -> None:
            os.rename(root + old, root + new)

        def chmod(self, path: str, mode: int) -> None:
            os.chmod(root + path, mode)

        def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
            os.utime(root + path, times)

        def truncate(self, path: str, length: int, handle: int | None = None) -> None:
            os.truncate(root + path, length)

        def open(self, path: str, flags: int) -> int:
            return os.open(root + path, flags & ~os.O_APPEND)

        def create(self, path: str, mode: int, info: Any = None) -> int:
            return os.open(root + path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
            return os.pread(handle, size, offset)

        def write(self, path: str, content: bytes, offset: int, handle: int) -> int:
            return os.pwrite(handle, content, offset)

        def fsync(self, path: str, data_only: int, handle: int) -> None:
            os.fsync(handle)

        def fsyncdir(self, path: str, data_only: int, handle: int) -> None:
            pass

        def release(self, path: str, handle: int) -> None:
            os.close(handle)

    # Without a cache: a read is to reach the disk that fails.
    FUSE(Passing(), mount, foreground=True, direct_io=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
