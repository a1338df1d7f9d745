"""An export on the disk is whole or not there: made in a hidden folder beside its place, and renamed at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from tandem.errors import TandemError
from tandem.storage import fsync_path, is_full, take_lock

# What an export that is being replaced is called inside the hidden folder.
REPLACED = "replaced"


def check_place(out: Path, replace: bool, is_one: Callable[[Path], bool]) -> None:
    """Refuse a place where something is, unless it is an export that may be replaced, or an empty folder."""
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    if not replace:
        raise TandemError(f"{out}: exists already; choose another --out, or replace it with --overwrite")
    if not is_one(out):
        raise TandemError(f"{out}: is not an export of this kind and is not replaced; choose another --out")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """An empty folder beside the place of an export, on the same disk; removed at the end, whatever comes.

    A killed process leaves it; the next export to the same place empties it first, and puts back the old export if the
    kill came between its removal and the new one's arrival.
    """
    place = out.resolve()
    if not place.name:
        raise TandemError(f"{out}: cannot be an export; choose another --out")
    staging = place.with_name(f".{place.name}.exporting")
    with explained_writing(out):
        staging.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(staging, os.O_RDONLY)
    try:
        if not take_lock(descriptor):
            raise TandemError(f"{out}: another process is exporting there; wait for it or choose another --out")
        try:
            with explained_writing(out):
                _put_back(staging, place)
                _empty(staging)
            yield staging
        finally:
            _put_back(staging, place)
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(descriptor)


def put_in_place(made: Path, out: Path) -> None:
    """Bring a file or a folder to the disk and give it its name, in place of what has it now."""
    for path in (made, *made.rglob("*")):
        fsync_path(path)
    if out.is_dir():
        # A folder cannot be renamed onto another; whatever comes between these two lines, `staged` puts it back.
        out.rename(made.with_name(REPLACED))
    made.rename(out)
    fsync_path(out.resolve().parent)


def _put_back(staging: Path, place: Path) -> None:
    """Give an old export its name again, if the new one has not come to take it."""
    if (staging / REPLACED).exists() and not place.exists():
        (staging / REPLACED).rename(place)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def explained_writing(out: Path) -> Iterator[None]:
    """Turn what a disk does to a writer into an error for the user."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = "the disk is full" if is_full(error) else getattr(error, "strerror", None) or str(error)
        raise TandemError(f"{out}: cannot be written ({why}); make room or choose another --out") from error
