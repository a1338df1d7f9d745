"""The file system of a disk that fails when it is told to: every call goes to a directory below, unless it is to fail.

    python -m testbed.faulty_disk_server ROOT MOUNT CONTROL

The control file names the call that fails, and the error: `write EIO`, `fsync EIO`, `read EIO`, `write ENOSPC`,
`write EDQUOT`, `create EROFS`; empty, all is well.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mfusepy import FUSE, FuseOSError, Operations


def may_fail(call: Callable[..., Any]) -> Callable[..., Any]:
    """Have a call of the file system fail with the error that the control file names for it."""

    @functools.wraps(call)
    def called(disk: PassingDisk, *arguments: Any) -> Any:
        failing = disk.control.read_text().split()
        if failing and failing[0] == call.__name__:
            raise FuseOSError(getattr(errno, failing[1]))
        return call(disk, *arguments)

    return called


class PassingDisk(Operations):  # type: ignore[misc]
    """Passes every call on to the directory below."""

    use_ns = True

    def __init__(self, root: str, control: Path) -> None:
        self._root, self.control = root, control

    def init_with_config(self, *_: Any) -> None:
        print("mounted", flush=True)

    @may_fail
    def getattr(self, path: str, handle: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._root + path)
        same = {name: getattr(found, name) for name in ("st_gid", "st_mode", "st_nlink", "st_size", "st_uid")}
        return same | {f"st_{name}": getattr(found, f"st_{name}_ns") for name in ("atime", "ctime", "mtime")}

    @may_fail
    def readdir(self, path: str, handle: int) -> list[str]:
        return [".", "..", *os.listdir(self._root + path)]

    @may_fail
    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._root + path, mode)
        return 0

    @may_fail
    def rmdir(self, path: str) -> int:
        os.rmdir(self._root + path)
        return 0

    @may_fail
    def unlink(self, path: str) -> int:
        os.unlink(self._root + path)
        return 0

    @may_fail
    def rename(self, old: str, new: str, flags: int = 0) -> int:
        os.rename(self._root + old, self._root + new)
        return 0

    @may_fail
    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._root + path, mode)
        return 0

    @may_fail
    def utimens(self, path: str, times: tuple[int, int]) -> int:
        os.utime(self._root + path, ns=times)
        return 0

    @may_fail
    def truncate(self, path: str, length: int, handle: int | None = None) -> int:
        os.truncate(self._root + path, length)
        return 0

    @may_fail
    def open(self, path: str, flags: int) -> int:
        return os.open(self._root + path, flags & ~os.O_APPEND)

    @may_fail
    def create(self, path: str, mode: int, info: Any = None) -> int:
        return os.open(self._root + path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    @may_fail
    def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        return os.pread(handle, size, offset)

    @may_fail
    def write(self, path: str, content: bytes, offset: int, handle: int) -> int:
        return os.pwrite(handle, content, offset)

    @may_fail
    def fsync(self, path: str, data_only: int, handle: int) -> int:
        os.fsync(handle)
        return 0

    @may_fail
    def fsyncdir(self, path: str, data_only: int, handle: int) -> int:
        return 0

    @may_fail
    def release(self, path: str, handle: int) -> int:
        os.close(handle)
        return 0


if __name__ == "__main__":
    root, mount, control = sys.argv[1:]
    # Without a cache: a read is to reach the disk that fails.
    FUSE(PassingDisk(root, Path(control)), mount, foreground=True, direct_io=True)
