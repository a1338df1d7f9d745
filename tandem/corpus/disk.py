"""The disk that corpora are brought to: it may be full, and other processes may be at work on it."""

from __future__ import annotations

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tandem.errors import TandemError

# Seconds until one who waits for another process looks again; locks on shared disks cannot wake anybody.
_LOOK_AGAIN = 0.2


def take_lock(file: int | IO[bytes]) -> bool:
    """Take the lock of an open file if nobody has it; the system lets go of it when the process ends, however it ends.

    Some network file systems know no locks: better unlocked than not at all.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def alone(lock: Path, waiting: Callable[[bool], None], pause: Callable[[float], object] = time.sleep) -> Iterator[None]:
    """Hold a lock file; whoever comes second waits.

    `waiting` hears False again and again while another process holds it, and True once that is over.
    """
    with lock.open("ab") as file:
        waited = False
        while not take_lock(file):
            waited = True
            waiting(False)
            pause(_LOOK_AGAIN)
        if waited:
            waiting(True)
        yield


def is_full(error: BaseException) -> bool:
    """Whether there was no room on the disk, or none left for this user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def told_of_disk(path: Path) -> Iterator[None]:
    """Trouble with writing a file as an error for the user."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            why, remedy = "the disk is full", "make room and start again: what has been fetched is kept"
        else:
            why, remedy = error.strerror or str(error), "check the disk and its permissions"
        raise TandemError(f"{path}: cannot be written ({why}); {remedy}") from error
