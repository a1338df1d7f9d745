"""What a process says of its peers: on a terminal that nobody reads, and to the others when it is stopped itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from tandem import process_signals
from tandem.cluster.join.launchers import ProcessRank
from tandem.cluster.join.meeting_store import Deadline, PatientWaiter
from tandem.cluster.liveness.liveness import Liveness, PeerListener
from tandem.cluster.liveness.silence import Silence
from tandem.process_exit import within
from tests.pipes import unread_pipe

pytestmark = pytest.mark.slow

SILENCE = Silence((1,), "b", "stopped", 11.0, "compute", 7)


def wait_long() -> None:
    waiter = PatientWaiter(ProcessRank(0, 2, 0), Deadline(600))
    waiter._after = 601
    waiter.waiting_for(lambda: "rank 1")


@pytest.mark.parametrize(
    "says",
    [
        lambda: PeerListener().fell_silent(SILENCE, speaks=True),
        lambda: PeerListener().returned(1, "b", 12.0, speaks=True),
        wait_long,
    ],
    ids=["silent", "returned", "waiting"],
)
def test_a_terminal_that_nobody_reads_holds_up_neither_joining_nor_ending(
    says: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with unread_pipe() as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert within(20, says)


def test_a_process_that_was_stopped_says_by_which_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_signals, "_listener", Mock(heard=signal.SIGTERM))
    liveness = Liveness(0, [[0]], ["a"], 600, "127.0.0.1", lambda offer: [offer])
    close = Mock(wraps=liveness._heartbeats.close)
    monkeypatch.setattr(liveness._heartbeats, "close", close)
    with pytest.raises(KeyboardInterrupt), liveness.watching():
        raise KeyboardInterrupt
    close.assert_called_once_with("stopped by SIGTERM")
