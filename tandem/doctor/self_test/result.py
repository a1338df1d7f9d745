"""What a self-test has found: a line for each check, the same on all processes."""

from __future__ import annotations

import platform
import re
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

from tandem.cluster.network import host_name
from tandem.cluster.version import package_version

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
# Directories in an error's message; the file's own name may stay.
DIRECTORIES = re.compile(r"(?<![\w.])(?:/[^\s/:'\"]+)+/")


@dataclass(frozen=True)
class Outcome:
    """What one process has found in one check."""

    status: str
    """passed, failed or not applicable."""
    found: str
    """One sentence."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Everything that was measured, by name; the name ends with the unit."""
    seconds: float = 0.0

    @classmethod
    def of(cls, passed: bool, found: str, **figures: Any) -> Outcome:
        return cls(PASSED if passed else FAILED, found, figures)

    @classmethod
    def not_applicable(cls, reason: str, **figures: Any) -> Outcome:
        return cls(NOT_APPLICABLE, reason, figures)


@dataclass(frozen=True)
class CheckResult:
    """What all processes have found in one check."""

    name: str
    expected: str
    status: str
    """Failed if any process says so; not applicable if all do."""
    found: str
    """Of the first process that failed, or else of the first that the check applied to."""
    seconds: float
    """Of the slowest process."""
    by_rank: tuple[Outcome, ...]


@dataclass(frozen=True)
class SelfTest:
    """All checks; nothing in it names a host, a user or a directory, so that it can be sent in."""

    preset: str
    """Sizes of the model that was trained."""
    processes: int
    versions: str
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return all(check.status != FAILED for check in self.checks)

    @property
    def seconds(self) -> float:
        return sum(check.seconds for check in self.checks)

    @property
    def summary(self) -> str:
        """One sentence."""
        counts = [sum(check.status == status for check in self.checks) for status in (PASSED, FAILED, NOT_APPLICABLE)]
        passed, failed, rest = counts
        return f"{passed} passed, {failed} failed, {rest} not applicable, in {self.seconds:.0f} s"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"passed": self.passed, "summary": self.summary, **asdict(self)}


def merged(name: str, expected: str, outcomes: list[Outcome]) -> CheckResult:
    """One result of what every process has found, by rank."""
    order = {FAILED: 0, PASSED: 1, NOT_APPLICABLE: 2}
    rank = min(range(len(outcomes)), key=lambda rank: order[outcomes[rank].status])
    said = outcomes[rank]
    found = f"rank {rank}: {said.found}" if said.status == FAILED and len(outcomes) > 1 else said.found
    return CheckResult(name, expected, said.status, found, max(each.seconds for each in outcomes), tuple(outcomes))


def anonymous(text: str) -> str:
    """A text without the host's name and without directories, which may hold a user's name."""
    host = socket.gethostname()
    # The longest first: a short name is the beginning of a long one.
    for name in sorted({host, host.partition(".")[0], host_name()}, key=len, reverse=True):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "HOST", text)
    return DIRECTORIES.sub("", text)


def versions() -> str:
    """What ran, without the machine's name."""
    return f"{package_version()}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
