"""The disk: one process at a time, whoever comes second is told, trouble comes with its remedy; and paths elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tandem.config import Config
from tandem.errors import TandemError
from tandem.storage import explained_write_errors, split_remote, take_lock, waiting_lock


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


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/mnt/disk", (None, "/mnt/disk")),
        ("./odd:name", (None, "./odd:name")),
        ("vm2:/runs/a", ("vm2", "/runs/a")),
        ("me@vm2.lan:runs", ("me@vm2.lan", "runs")),
        ("vm2:~/runs/a", ("vm2", "runs/a")),
        ("vm2:~", ("vm2", ".")),
        ("~/runs/a", (None, "/home/me/runs/a")),
        ("~", (None, "/home/me")),
    ],
)
def test_a_target_is_a_directory_or_a_host_and_a_path(
    target: str, parts: tuple[str | None, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert split_remote(target) == parts


@pytest.mark.parametrize("target", ["", "-x", "-oProxyCommand=touch:x", "a b:x", "vm2:", "$(reboot):x", "me@-x:y"])
def test_any_other_target_is_refused_with_the_settings(target: str) -> None:
    with pytest.raises(TandemError, match=r"checkpoint.mirror: .*host:path"):
        Config.load("demo", [f"checkpoint.mirror='{target}'"])


@pytest.mark.parametrize(
    ("target", "forms"),
    [
        ("s3://bucket/x", r"a directory \(also one where a bucket is mounted\), host:path or user@host:path"),
        ("file:///mnt/x", r"a directory \(also one where a bucket is mounted\), host:path or user@host:path"),
        ("~root/x", "have the full path instead of another user's home"),
        ("vm2:~root/x", "have the full path instead of another user's home"),
    ],
)
def test_a_target_that_no_program_would_find_is_refused_with_what_is_possible(target: str, forms: str) -> None:
    with pytest.raises(TandemError, match=rf"checkpoint.mirror: should (be )?{forms}.*, not '{target}'; Second place"):
        Config.load("demo", [f"checkpoint.mirror={target}"])
