"""Files on disks that fill up, vanish and are shared: written whole or not at all, locked, their errors explained."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO

from tandem.errors import TandemError
from tandem.ssh import HOST_PATTERN

# Seconds until one who waits for another process looks again; locks on shared disks cannot wake anybody.
_LOOK_AGAIN = 0.2
# The forms of a place to copy to, for whoever has given another.
_PLACE = "a directory (also one where a bucket is mounted), host:path or user@host:path"
_ERROR_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing that is renamed to `path` once it is on the disk; removed after a failure."""
    # One writer a file, so the name may be fixed: what a killed one left is written over.
    partial = path.with_name(f".{path.name}.writing")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            # A write that fails does not say which file it was.
            error.filename = str(path)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file by way of `whole_file`."""
    with whole_file(path) as file:
        file.write(content)


def append(file: FileIO, content: bytes) -> None:
    """Append to a file without a buffer; of what the disk takes only in part, an OSError tells."""
    if file.write(content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as indented JSON by way of `whole_file`."""
    write_whole(path, (json.dumps(facts, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; a ValueError if it holds anything else."""
    try:
        content = json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds {type(content).__name__}, not an object")
    return content


def fsync_path(path: str | Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(directory: Path) -> None:
    """Bring all of a tree to the disk, so that a power cut after its renaming cannot leave empty files."""
    for path in (*directory.rglob("*"), directory):
        fsync_path(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def try_lock(file: int | IO[bytes]) -> bool | None:
    """Lock an open file unless another process has; None where the file system knows no locks.

    The system unlocks it when the process ends, however it ends.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def take_lock(file: int | IO[bytes]) -> bool:
    """Lock an open file unless another process has; where there are no locks, better unlocked than not at all."""
    return try_lock(file) is not False


@contextmanager
def waiting_lock(
    path: Path, waiting: Callable[[bool], None], pause: Callable[[float], object] = time.sleep
) -> Iterator[None]:
    """Hold a lock on a directory, or on a file for it, after waiting for any process that holds it.

    `waiting` is called with False again and again while another process holds it, and with True once that is over.
    """
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        waited = False
        while not take_lock(descriptor):
            waited = True
            waiting(False)
            pause(_LOOK_AGAIN)
        if waited:
            waiting(True)
        yield
    finally:
        os.close(descriptor)


def split_remote(target: str) -> tuple[str | None, str]:
    """Host and path of `host:path` or `user@host:path`; no host for a path on this one. ValueError for neither.

    `~` is the user's home, here or there, where no shell will say so: there paths begin at home anyway. Which home
    `~name` is depends on the host that reads the settings, so it is refused.
    """
    before, colon, path = target.partition(":")
    local = not colon or "/" in before
    if re.match("~[^/]", target if local else path):
        raise ValueError("Input should have the full path instead of another user's home")
    if local:
        if not target or target.startswith("-"):
            raise ValueError(f"Input should be {_PLACE}")
        return None, os.path.expanduser(target)
    # Of a URL the scheme would be the host.
    if not re.fullmatch(HOST_PATTERN, before, re.ASCII) or not path or path.startswith("//"):
        raise ValueError(f"Input should be {_PLACE}, with a plain host name")
    return before, "." if path == "~" else path.removeprefix("~/") or "."


def error_in_words(error: BaseException) -> str:
    """An error as a person would say it, without the number that the system gives it."""
    if isinstance(error, OSError) and error.strerror:
        reason = "the disk is full" if is_full(error) else error.strerror
        return reason if error.filename is None else f"{error.filename}: {reason}"
    found = _ERROR_NUMBER.search(str(error))
    # The library that writes weights tells of the system's errors in a text of its own.
    if found and is_full(OSError(int(found[1]), "")):
        return "the disk is full"
    if found:
        return os.strerror(int(found[1]))
    return f"{type(error).__name__}: {error}"


def is_full(error: BaseException) -> bool:
    """Whether there was no room on the disk, or none left for this user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def explained_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while a file is written into an error for the user."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            why, remedy = "the disk is full", "make room and start again: what has been fetched is kept"
        else:
            why, remedy = error.strerror or str(error), "check the disk and its permissions"
        raise TandemError(f"{path}: cannot be written ({why}); {remedy}") from error
