"""A launcher whose terminal is closed or read by nobody: lines are lost, and not the run."""

from __future__ import annotations

import sys

import pytest

from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.supervisor import launch
from tests.pipes import opened_pipe, unread_pipe

pytestmark = pytest.mark.slow


def launched_help() -> int:
    """The exit code of a launch, on this machine, of a command that prints a page."""
    return launch(
        LaunchOrder(
            hosts=[LaunchHost("localhost", 1)],
            arguments=["--help"],
            corpus=None,
            run=None,
            mirrored=False,
            as_json=False,
            ssh=["ssh"],
            port=None,
            address=None,
            join_seconds=100,
            stop_seconds=10,
            restarts=0,
            min_hosts=1,
        )
    )


def test_a_reader_who_has_seen_enough_does_not_end_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened_pipe() as (reads, writes):
        reads.close()
        monkeypatch.setattr(sys, "stdout", writes)
        assert launched_help() == 0


def test_a_terminal_that_nobody_reads_does_not_hold_up_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    with unread_pipe() as writes:
        monkeypatch.setattr(sys, "stdout", writes)
        assert launched_help() == 0


def test_what_hosts_print_is_shown_under_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened_pipe() as (reads, writes):
        monkeypatch.setattr(sys, "stdout", writes)
        assert launched_help() == 0
        writes.close()
        lines = reads.read().splitlines()
    assert all(line.startswith("[localhost] ") for line in lines)
    assert any("Usage" in line for line in lines)
