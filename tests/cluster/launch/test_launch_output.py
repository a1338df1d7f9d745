"""A launcher whose terminal is closed or read by nobody: lines are lost, and not the run; signals keep their names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.supervisor import launch
from tandem.process_exit import stop_code
from tests.cluster.launch.test_ssh_launch import with_path
from tests.pipes import opened_pipe, unread_pipe

pytestmark = pytest.mark.slow

# Every Python reads this file when it starts; the process that is launched goes on when it is asked to stop.
WAIT_FOR_A_REQUEST = """
import os, signal
if "RANK" in os.environ:
    print("here", flush=True)
    while not signal.sigpending():
        pass
"""


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


def is_pending(process: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_closed_terminal_does_not_end_a_launch_under_nohup(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WAIT_FOR_A_REQUEST)
    command = ["nohup", sys.executable, "-m", "tandem", "launch", "-H", "localhost:1", "--", "corpora"]
    environment = {**os.environ, **with_path(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[localhost] here\n"
        process.send_signal(signal.SIGHUP)
        # Of two signals that wait the later one may be answered first.
        while is_pending(process.pid, signal.SIGHUP):
            pass
        process.send_signal(number)
        said = process.communicate()[1].splitlines()
    assert process.returncode == stop_code(number)
    assert said[-1] == f"[localhost] tandem: stopped by {number.name}"
