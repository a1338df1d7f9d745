"""What to do after the processes of an attempt have ended: end with a code, or start again, and what to say."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tandem.process_exit import LOST_PEER_CODE, SIGNALLED, is_stop_code, stop_code

# Exit code of a fault that the user can mend, and another attempt cannot.
USER_ERROR = 2
# ssh's own exit code, when it was not the remote command that failed.
SSH_FAILED = 255
# The first pause before another attempt: what was lost may be back, and what is left of the last attempt has ended.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
# After a notice of preemption the machine is still there for up to two minutes, and an attempt with it would be lost.
PREEMPTION_PAUSE_SECONDS = 120.0
# A run that has trained for so long, and saved, is healthy: its earlier failures count no more.
HEALTHY_SECONDS = 600.0
# Between two looks at whether a lost host is back; longer for one that was lost again and again.
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 15.0, 600.0


class EndingKind(IntEnum):
    """How a host's part of an attempt ended; a larger number tells more about the cause."""

    FINISHED = 0
    STOPPED = 1
    """Its processes were asked to save and stop."""
    REFUSED = 2
    """A user's error, which its processes have told."""
    FAILED = 3
    """A process ended with another exit code: a fault of the program, a driver or a card."""
    LOST_PEER = 4
    PREEMPTED = 5
    """Its processes have saved and stopped, because one of the hosts is about to be taken away."""
    UNREACHABLE = 6
    AGENT_KILLED = 7
    KILLED = 8
    """A process was ended by a signal, or was stopped by one and then had to be ended."""

    @property
    def mendable(self) -> bool:
        """Whether another attempt may succeed."""
        return self >= EndingKind.FAILED

    @property
    def stopped(self) -> bool:
        """Whether its processes were asked to stop, have agreed on it with all others, and have saved."""
        return self in (EndingKind.STOPPED, EndingKind.PREEMPTED)


@dataclass(frozen=True)
class HostReport:
    """The last word of a host's agent: the exit code of its processes, and what a signal has done to one."""

    code: int
    killed: str | None = None
    """In words, e.g. `rank 1 was ended by SIGKILL`."""


@dataclass(frozen=True)
class HostEnding:
    """How a host's part of an attempt ended."""

    host: str
    kind: EndingKind
    code: int
    words: str
    """What happened there; empty if the processes have said it themselves."""

    @classmethod
    def of(cls, host: str, code: int, report: HostReport | None) -> HostEnding:
        """What the exit code of a host's connection means, with its agent's report, if it could still make one."""
        if report is None:
            return cls._without_report(host, code)
        kind, words = _meaning(report.code)
        if report.killed is not None:
            kind, words = EndingKind.KILLED, report.killed
        return cls(host, kind, report.code, words)

    @classmethod
    def _without_report(cls, host: str, code: int) -> HostEnding:
        if code == SSH_FAILED:
            return cls(host, EndingKind.UNREACHABLE, code, "lost the connection")
        if code - SIGNALLED in list(signal.Signals):
            name = signal.Signals(code - SIGNALLED).name
            words = f"the agent was killed by {name}"
            if name == "SIGKILL":
                words += f", perhaps out of memory; dmesg on {host} tells"
            return cls(host, EndingKind.AGENT_KILLED, code, words)
        return cls(host, EndingKind.FAILED, code, f"the agent ended with exit code {code}")


def _meaning(code: int) -> tuple[EndingKind, str]:
    # Unless the user has sent it to the launcher. All processes end with the code, which does not tell the host.
    if code == stop_code(signal.SIGUSR1):
        return EndingKind.PREEMPTED, "saved and stopped by SIGUSR1, as when a host is about to be taken away"
    if is_stop_code(code):
        return EndingKind.STOPPED, ""
    meanings = {
        0: (EndingKind.FINISHED, ""),
        USER_ERROR: (EndingKind.REFUSED, ""),
        LOST_PEER_CODE: (EndingKind.LOST_PEER, "lost another process"),
    }
    return meanings.get(code, (EndingKind.FAILED, f"ended with exit code {code}"))


@dataclass(frozen=True)
class AttemptEnding:
    """How an attempt ended on all hosts."""

    hosts: Sequence[HostEnding]
    """In the order of time: what follows only from an ending comes after it."""
    seconds: float
    saved: bool
    """Whether a checkpoint was saved in it, where that is known; otherwise taken to be so."""
    asked_by: int | None = None
    """The signal by which the user asked to stop."""
    regrouping: bool = False
    """Whether the launcher itself asked to stop, because a lost host is back."""

    @property
    def cause(self) -> HostEnding:
        """The ending that tells most about why; of equals the first."""
        return max(self.hosts, key=lambda ending: ending.kind)

    @property
    def first_code(self) -> int:
        """The exit code of the first host that failed, 0 if none did."""
        return next((ending.code for ending in self.hosts if ending.code), 0)


@dataclass(frozen=True)
class End:
    """Leave it at that."""

    code: int
    words: str = ""


@dataclass(frozen=True)
class StartAgain:
    """Start the command again after a pause."""

    pause: float
    failures: int
    """Failures in a row so far."""
    words: str = ""


def after_attempt(attempt: AttemptEnding, failures: int, restarts: int) -> End | StartAgain:
    """What to do after an attempt, when so many before it have failed in a row."""
    cause = attempt.cause
    if attempt.asked_by is not None:
        if cause.kind.stopped:
            return End(stop_code(attempt.asked_by))
        return End(attempt.first_code, _said(cause))
    if attempt.regrouping and cause.kind is EndingKind.STOPPED:
        return StartAgain(0.0, failures)
    if not cause.kind.mendable:
        return End(attempt.first_code)
    if cause.kind is EndingKind.LOST_PEER and not restarts:
        # Its processes have said which one.
        return End(cause.code)
    healthy = attempt.seconds >= HEALTHY_SECONDS and attempt.saved
    shortest = PREEMPTION_PAUSE_SECONDS if cause.kind is EndingKind.PREEMPTED else 0.0
    return after_failure(_said(cause), cause.code, 0 if healthy else failures, restarts, shortest)


def after_failure(words: str, code: int, failures: int, restarts: int, shortest_pause: float = 0.0) -> End | StartAgain:
    """What to do after a failure that another attempt may mend, and what to say about it."""
    if failures >= restarts:
        gave_up = f"; gave up after {restarts + 1} attempts" if restarts else ""
        return End(code, f"{words}{gave_up}")
    pause = max(min(FIRST_PAUSE_SECONDS * 2 ** min(failures, 8), LONGEST_PAUSE_SECONDS), shortest_pause)
    return StartAgain(pause, failures + 1, f"{words}; attempt {failures + 2} of {restarts + 1} in {pause:.0f} s")


def look_again_seconds(losses: int) -> float:
    """Time until the next look at a host that was lost so many times."""
    return float(min(FIRST_LOOK_SECONDS * 2 ** min(max(losses - 1, 0), 8), LONGEST_LOOK_SECONDS))


def _said(ending: HostEnding) -> str:
    return f"{ending.host}: {ending.words}" if ending.words else ""
