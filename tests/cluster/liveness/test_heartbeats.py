"""Heartbeats of real processes over real connections: who is stopped, hangs, has ended, or is just busy."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.beating_processes import members

pytestmark = pytest.mark.slow

ANSWERS = "; its host answers: the process is stopped, or gets neither memory nor processor"


def test_a_stopped_process_is_named_by_all_and_its_return_too() -> None:
    with members("a", "b", "b") as (first, second, third):
        second.signal(signal.SIGSTOP)
        for member, speaks in ((first, True), (third, True)):
            kind, *silence, phase, words, does_speak = member.hears() or []
            assert (kind, silence) == ("silent", [[1], "b", "stopped"])
            assert words.startswith("rank 1 on b: no heartbeat for ")
            # Whichever phase its last beat told of.
            assert words.endswith(f" s, last in {phase} after step 7{ANSWERS}")
            assert does_speak is speaks
        second.signal(signal.SIGCONT)
        assert first.hears() == ["returned", 1, "b", True]
        assert third.hears() == ["returned", 1, "b", True]
        assert second.hears() == ["slept"]


@pytest.mark.long
def test_the_first_process_is_watched_by_the_others() -> None:
    with members("a", "b", "b") as (first, second, third):
        first.signal(signal.SIGSTOP)
        for member, speaks in ((second, True), (third, False)):
            kind, ranks, host, cause, *_, does_speak = member.hears() or []
            assert (kind, ranks, host, cause, does_speak) == ("silent", [0], "a", "stopped", speaks)
        first.signal(signal.SIGCONT)
        assert second.hears() == ["returned", 0, "a", True]
        assert third.hears() == ["returned", 0, "a", False]


def test_after_patience_all_end_in_the_same_words() -> None:
    with members("a", "b", "c", patience=1) as (first, second, third):
        second.signal(signal.SIGSTOP)
        told = []
        for member in (first, third):
            assert (member.hears() or [])[0] == "silent"
            told.append(member.hears())
            assert member.end() == 75
        assert told[0] == told[1]
        kind, words, speaks = told[0] or []
        assert (kind, speaks) == ("lost", True)
        assert words.startswith("rank 1 on b does not answer since ")
        assert words.endswith(" s: the process does not run, although its host answers")


def test_a_process_that_was_given_up_hears_of_it_when_it_is_woken() -> None:
    """The others have not been killed, nor crashed."""
    with members("a", "b", patience=1) as (first, second):
        first.signal(signal.SIGSTOP)
        assert second.end() == 75
        first.signal(signal.SIGCONT)
        told = first.hears() or []
        if told == ["slept"]:
            told = first.hears() or []
        assert told[0] == "lost"
        assert told[1].startswith("rank 1 on b has ended (rank 0 on a does not answer since ")


def test_a_killed_process_is_known_at_once() -> None:
    with members("a", "b", "c") as (first, second, third):
        second.signal(signal.SIGKILL)
        sentence = "rank 1 on b has ended (it was killed, or it has crashed)"
        # One whose collective has failed names it itself, the other is ended by its listener.
        first.do("explain")
        assert first.hears() == ["explained", sentence, True]
        assert third.hears() == ["lost", sentence, True]
        assert third.end() == 75


def test_the_end_of_the_first_process_is_known_to_the_others() -> None:
    with members("a", "b") as (first, second):
        first.signal(signal.SIGKILL)
        assert second.hears() == ["lost", "rank 0 on a has ended (it was killed, or it has crashed)", True]


def test_why_a_process_has_failed_is_known_to_the_others() -> None:
    with members("a", "b", "b") as (first, second, third):
        second.do("fail", "the disk is full")
        assert second.end() == 2
        assert first.hears() == ["lost", "rank 1 on b has ended (the disk is full)", True]
        assert third.hears() == ["lost", "rank 1 on b has ended (the disk is full)", True]


def test_nobody_minds_a_process_that_leaves_in_good_order() -> None:
    with members("a", "b", patience=1) as (first, second):
        second.leave()
        assert second.end() == 0
        # Longer than it would take to miss the other.
        first.do("compute", 4)
        assert first.hears() == ["computed"]
        first.leave()
        assert first.end() == 0


def test_a_process_that_hangs_is_named_with_its_stack(tmp_path: Path) -> None:
    pipe = tmp_path / "shard"
    os.mkfifo(pipe)
    with members("a", "b", stacks=tmp_path) as (first, second):
        second.do("read", pipe)
        first.do("exchange")
        for member in (first, second):
            kind, ranks, host, cause, phase, words, _ = member.hears() or []
            assert (kind, ranks, host, cause, phase) == ("silent", [1], "b", "hanging", "data")
            assert words.startswith("rank 1 on b: in data for ")
            assert words.endswith(" s while others wait for it; its stack is in journal/rank-1.stack there")
        assert "read_text" in (tmp_path / "rank-1.stack").read_text()
        with pipe.open("w"):
            pass
        assert first.hears() == ["returned", 1, "b", True]
        assert second.hears() == ["returned", 1, "b", True]


@pytest.mark.long
def test_the_first_process_may_hang_too(tmp_path: Path) -> None:
    pipe = tmp_path / "shard"
    os.mkfifo(pipe)
    with members("a", "b", stacks=tmp_path) as (first, second):
        first.do("read", pipe)
        second.do("exchange")
        for member in (first, second):
            assert (member.hears() or [])[:5] == ["silent", [0], "a", "hanging", "data"]
        assert (tmp_path / "rank-0.stack").exists()


def test_a_long_phase_is_no_alarm() -> None:
    """Somebody waits, for longer than a hanging process would be given; but the other is at work."""
    with members("a", "b", patience=1) as (first, second):
        first.do("exchange")
        second.do("compute", 5)
        assert second.hears() == ["computed"]
        first.do("go on")
        first.do("compute", 0)
        assert first.hears() == ["computed"]


def test_nobody_hangs_whom_nobody_waits_for(tmp_path: Path) -> None:
    pipe = tmp_path / "shard"
    os.mkfifo(pipe)
    with members("a", "b", patience=1) as (first, second):
        second.do("read", pipe)
        first.do("compute", 5)
        assert first.hears() == ["computed"]
        with pipe.open("w"):
            pass
        second.do("compute", 0)
        assert second.hears() == ["computed"]
