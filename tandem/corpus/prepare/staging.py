"""Builds a directory beside its final place, so that it appears there whole or not at all.

Beside the place `corpus` a hidden directory `.corpus.partial` holds what is being built and what is only needed for
the building. It survives whatever stops the work, so that the work can go on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tandem.errors import TandemError
from tandem.storage import fsync_path, fsync_tree, take_lock

BUILT = "built"
LOCK = "lock"


@contextmanager
def staged_directory(out: Path, *, overwrite: bool, marker: str) -> Iterator[Path]:
    """Give a directory to work in, in which a directory BUILT is made; that becomes `out` at the end.

    What stopped from outside (a kill, an interrupt, a full disk) can go on: the next one gets the directory as it was
    left. What cannot succeed (a fault of the user's) leaves nothing behind. With `overwrite` an existing `out` is
    replaced, but only if it is empty or holds the file `marker`: a slip of the keyboard must not delete a home
    directory.
    """
    place = out.resolve()  # a link to a directory stays a link
    work, old = place.with_name(f".{place.name}.partial"), place.with_name(f".{place.name}.old")
    _check_free(out, overwrite, marker)
    new_parents = [parent for parent in place.parents if not parent.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = _lock(work / LOCK, out)
        if old.is_dir() and not place.exists():  # moved aside by a process that was killed before it could go on
            old.rename(place)
    except OSError as error:
        raise TandemError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
    try:
        yield work
        fsync_tree(work / BUILT)
        try:
            _check_free(out, overwrite, marker)
        except TandemError as error:  # hours may have passed: what was built in them is kept
            raise FileExistsError(str(error)) from error
        _replace(place, work / BUILT, old)
        shutil.rmtree(work, ignore_errors=True)
    except TandemError:
        shutil.rmtree(work, ignore_errors=True)
        for parent in new_parents:  # innermost first
            with suppress(OSError):
                parent.rmdir()
        raise
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        raise TandemError(
            f"{out}: not finished ({why}); mend that and run the same command again, which goes on "
            f"where it stopped, or remove {work}"
        ) from error
    finally:
        lock.close()


def _check_free(out: Path, overwrite: bool, marker: str) -> None:
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / marker).is_file()):
        raise TandemError(f"{out}: not a prepared corpus, so --overwrite leaves it alone; give another --out")
    if not overwrite:
        raise TandemError(f"{out}: already exists; give another --out, or --overwrite to replace it")


def _lock(path: Path, out: Path) -> BinaryIO:
    """Hold a lock file in the working directory, which works on shared disks, where locks on directories do not."""
    lock = path.open("ab")
    # The one who held it before may have removed it, with the directory, in the meantime.
    if not take_lock(lock) or not path.exists() or not os.path.samestat(os.fstat(lock.fileno()), path.stat()):
        lock.close()
        raise TandemError(f"{out}: another `tandem prepare` is writing it; wait for it or give another --out")
    return lock


def _replace(place: Path, built: Path, old: Path) -> None:
    """Put the finished directory in its place; a directory there is moved aside first and then removed."""
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    try:
        built.rename(place)
    except BaseException:
        if old.exists():
            old.rename(place)
        raise
    fsync_path(place.parent)
    shutil.rmtree(old, ignore_errors=True)
