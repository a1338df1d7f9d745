"""What `tandem launch` does after an attempt has ended, as a table."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tandem.cluster.launch.restart_policy import (
    FIRST_LOOK_SECONDS,
    HEALTHY_SECONDS,
    LONGEST_LOOK_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SSH_FAILED,
    AttemptEnding,
    End,
    EndingKind,
    HostEnding,
    HostReport,
    StartAgain,
    after_attempt,
    after_failure,
    look_again_seconds,
)
from tandem.process_exit import LOST_PEER_CODE

KILLED = HostReport(137, "rank 1 was ended by SIGKILL")
NOTICE = "saved and stopped by SIGUSR1, as when a host is about to be taken away"


@pytest.mark.parametrize(
    ("code", "report", "kind", "words"),
    [
        (0, HostReport(0), EndingKind.FINISHED, ""),
        (143, HostReport(143), EndingKind.STOPPED, ""),
        (130, HostReport(130), EndingKind.STOPPED, ""),
        (138, HostReport(138), EndingKind.PREEMPTED, NOTICE),
        (2, HostReport(2), EndingKind.REFUSED, ""),
        (1, HostReport(1), EndingKind.FAILED, "ended with exit code 1"),
        (75, HostReport(75), EndingKind.LOST_PEER, "lost another process"),
        (137, KILLED, EndingKind.KILLED, "rank 1 was ended by SIGKILL"),
        (75, HostReport(75, "rank 1 was frozen"), EndingKind.KILLED, "rank 1 was frozen"),
        (255, None, EndingKind.UNREACHABLE, "lost the connection"),
        (
            137,
            None,
            EndingKind.AGENT_KILLED,
            "the agent was killed by SIGKILL, perhaps out of memory; dmesg on vm2 tells",
        ),
        (143, None, EndingKind.AGENT_KILLED, "the agent was killed by SIGTERM"),
        (1, None, EndingKind.FAILED, "the agent ended with exit code 1"),
    ],
)
def test_what_an_exit_code_means(code: int, report: HostReport | None, kind: EndingKind, words: str) -> None:
    ending = HostEnding.of("vm2", code, report)
    assert (ending.kind, ending.code, ending.words) == (kind, code, words)


def ended(*codes: int, seconds: float = 20.0) -> AttemptEnding:
    """An attempt on hosts that end with these exit codes, one after the other; 137 is a process killed."""
    reports = {137: KILLED, SSH_FAILED: None}
    hosts = [
        HostEnding.of(f"vm{number}", code, reports.get(code, HostReport(code))) for number, code in enumerate(codes, 1)
    ]
    return AttemptEnding(hosts, seconds, saved=True)


@pytest.mark.parametrize(
    ("attempt", "move"),
    [
        (ended(0, 0), End(0)),
        # A user's error is not mended by another attempt, nor is a stop that was asked for a failure.
        (ended(2, 143), End(2)),
        (ended(143, 143), End(143)),
        # Whatever ended first: the loss is the cause, and the other host has only noticed it.
        (ended(LOST_PEER_CODE, 137), StartAgain(5, 1, "vm2: rank 1 was ended by SIGKILL; attempt 2 of 4 in 5 s")),
        (ended(2, 137), StartAgain(5, 1, "vm2: rank 1 was ended by SIGKILL; attempt 2 of 4 in 5 s")),
        (ended(143, SSH_FAILED), StartAgain(5, 1, "vm2: lost the connection; attempt 2 of 4 in 5 s")),
        (ended(LOST_PEER_CODE, 143), StartAgain(5, 1, "vm1: lost another process; attempt 2 of 4 in 5 s")),
        (ended(1, 143), StartAgain(5, 1, "vm1: ended with exit code 1; attempt 2 of 4 in 5 s")),
        # A notice of preemption: sooner, the host that had it would still be there, and be lost again.
        (ended(138, 138), StartAgain(120, 1, f"vm1: {NOTICE}; attempt 2 of 4 in 120 s")),
        (ended(LOST_PEER_CODE, 138), StartAgain(120, 1, f"vm2: {NOTICE}; attempt 2 of 4 in 120 s")),
        (ended(138, SSH_FAILED), StartAgain(5, 1, "vm2: lost the connection; attempt 2 of 4 in 5 s")),
    ],
)
def test_after_an_attempt(attempt: AttemptEnding, move: End | StartAgain) -> None:
    assert after_attempt(attempt, failures=0, restarts=3) == move


@pytest.mark.parametrize(
    ("codes", "code"), [((143, 143), 130), ((138, 138), 130), ((0, 0), 0), ((137, 143), 137), ((2, 2), 2)]
)
def test_a_user_who_asks_to_stop_is_obeyed(codes: tuple[int, ...], code: int) -> None:
    move = after_attempt(replace(ended(*codes), asked_by=signal.SIGINT), failures=0, restarts=3)
    assert isinstance(move, End)
    assert move.code == code


def test_stopping_for_a_host_that_is_back_is_no_failure() -> None:
    assert after_attempt(replace(ended(143), regrouping=True), failures=2, restarts=3) == StartAgain(0, 2)
    assert after_attempt(replace(ended(0), regrouping=True), failures=2, restarts=3) == End(0)
    failed = after_attempt(replace(ended(137), regrouping=True), failures=2, restarts=3)
    assert isinstance(failed, StartAgain)
    assert failed.failures == 3


def test_failures_in_a_row_are_counted() -> None:
    words = "vm1: lost the connection"
    pauses = []
    for failures in range(20):
        move = after_failure(words, 255, failures, restarts=20)
        assert isinstance(move, StartAgain)
        assert move.failures == failures + 1
        pauses.append(move.pause)
    assert pauses[:5] == [5, 10, 20, 40, LONGEST_PAUSE_SECONDS]
    assert max(pauses) == LONGEST_PAUSE_SECONDS
    assert after_failure(words, 255, 20, restarts=20) == End(255, f"{words}; gave up after 21 attempts")
    # Nobody has asked for another attempt.
    assert after_failure(words, 255, 0, restarts=0) == End(255, words)
    # The processes have named the one that they lost.
    assert after_attempt(ended(LOST_PEER_CODE, 143), 0, restarts=0) == End(LOST_PEER_CODE)
    assert after_attempt(ended(138), 0, restarts=0) == End(138, f"vm1: {NOTICE}")


@pytest.mark.parametrize(
    ("seconds", "saved", "failures"),
    [(HEALTHY_SECONDS - 1, True, 4), (HEALTHY_SECONDS, False, 4), (HEALTHY_SECONDS, True, 1)],
)
def test_only_a_healthy_stretch_is_forgiven_earlier_failures(seconds: float, saved: bool, failures: int) -> None:
    """It must have left something to go on from, or it could go on like that for ever."""
    move = after_attempt(replace(ended(137, seconds=seconds), saved=saved), failures=3, restarts=5)
    assert isinstance(move, StartAgain)
    assert move.failures == failures


def test_a_host_that_is_lost_again_and_again_is_looked_for_less_often() -> None:
    seconds = [look_again_seconds(losses) for losses in range(1, 30)]
    assert seconds[:3] == [FIRST_LOOK_SECONDS, 2 * FIRST_LOOK_SECONDS, 4 * FIRST_LOOK_SECONDS]
    assert seconds[-1] == LONGEST_LOOK_SECONDS
