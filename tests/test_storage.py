"""The disk: one process at a time, whoever comes second is told, and trouble comes with its remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.storage import explained_write_errors, take_lock, waiting_lock


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("ab") as first, (tmp_path / "lock").open("ab") as second:
        assert take_lock(first)
        assert not take_lock(second)
        first.close()
        assert take_lock(second)


def test_where_there_are_no_locks_work_goes_on() -> None:
    nothing = os.open(os.devnull, os.O_PATH)  # which the system refuses to lock
    assert take_lock(nothing)
    os.close(nothing)


def test_whoever_waits_is_told_until_it_is_over(tmp_path: Path) -> None:
    heard: list[bool] = []
    first = (tmp_path / "lock").open("ab")
    take_lock(first)

    def pause(seconds: float) -> None:
        if len(heard) == 3:
            first.close()

    with waiting_lock(tmp_path / "lock", heard.append, pause):
        assert heard == [False, False, False, True]
    with waiting_lock(tmp_path / "lock", heard.append):
        assert len(heard) == 4


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "a: cannot be written (the disk is full); make room and start again"),
        (errno.EDQUOT, "a: cannot be written (the disk is full); make room and start again"),
        (errno.EROFS, "a: cannot be written (Read-only file system); check the disk and its permissions"),
    ],
)
def test_trouble_comes_with_its_remedy(number: int, said: str) -> None:
    with pytest.raises(TandemError) as caught, explained_write_errors(Path("a")):
        raise OSError(number, os.strerror(number))
    assert str(caught.value).startswith(said)
